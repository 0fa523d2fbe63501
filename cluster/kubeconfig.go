package cluster

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"proa/internal/pki"
)

// ContextName names proa's cluster, user and context in a kubeconfig.
const ContextName = "proa"

// adminKubeconfig keeps DataDir/admin.kubeconfig valid: full rights by client certificate, readable by its owner only.
func adminKubeconfig(file, server string, ca *pki.Authority) error {
	if old, err := clientcmd.LoadFromFile(file); err == nil && usable(old, server, ca) {
		return nil
	}
	cert, err := ca.Issue(pki.Leaf{CommonName: "kubernetes-admin", Organizations: []string{"system:masters"}})
	if err != nil {
		return err
	}
	key, err := pki.KeyPEM(cert.PrivateKey)
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[ContextName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca.PEM()}
	config.AuthInfos[ContextName] = &clientcmdapi.AuthInfo{
		ClientCertificateData: pki.CertificatePEM(cert.Certificate[0]), ClientKeyData: key,
	}
	config.Contexts[ContextName] = &clientcmdapi.Context{Cluster: ContextName, AuthInfo: ContextName}
	config.CurrentContext = ContextName
	return clientcmd.WriteToFile(*config, file)
}

// usable reports whether a kubeconfig still opens the cluster for at least a month.
func usable(c *clientcmdapi.Config, server string, ca *pki.Authority) bool {
	cluster, user := c.Clusters[ContextName], c.AuthInfos[ContextName]
	if cluster == nil || user == nil || cluster.Server != server || string(cluster.CertificateAuthorityData) != string(ca.PEM()) {
		return false
	}
	cert, err := parseCertificate(user.ClientCertificateData)
	if err != nil || time.Until(cert.NotAfter) < 30*24*time.Hour {
		return false
	}
	_, err = cert.Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// MergeKubeconfig adds proa's cluster, user and context to the user's kubeconfig ($KUBECONFIG's first file, or
// ~/.kube/config) and makes it the current context. Nothing else in the file changes. It returns the file's name.
func MergeKubeconfig(admin string) (string, error) {
	ours, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		return "", err
	}
	file := userKubeconfig()
	config, err := loadOrNew(file)
	if err != nil {
		return "", err
	}
	config.Clusters[ContextName] = ours.Clusters[ContextName]
	config.AuthInfos[ContextName] = ours.AuthInfos[ContextName]
	context := ours.Contexts[ContextName]
	if old := config.Contexts[ContextName]; old != nil {
		context.Namespace = old.Namespace
	}
	config.Contexts[ContextName] = context
	config.CurrentContext = ContextName
	return file, writeKubeconfig(file, config)
}

// UnmergeKubeconfig takes out again what MergeKubeconfig added, unless that is of another cluster than admin's.
func UnmergeKubeconfig(admin string) error {
	ours, err := clientcmd.LoadFromFile(admin)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	file := userKubeconfig()
	config, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	present, own := config.Clusters[ContextName], ours.Clusters[ContextName]
	if present == nil || own == nil || !bytes.Equal(present.CertificateAuthorityData, own.CertificateAuthorityData) {
		return nil
	}
	delete(config.Clusters, ContextName)
	delete(config.AuthInfos, ContextName)
	delete(config.Contexts, ContextName)
	if config.CurrentContext == ContextName {
		config.CurrentContext = ""
	}
	return writeKubeconfig(file, config)
}

func userKubeconfig() string {
	if files := filepath.SplitList(os.Getenv(clientcmd.RecommendedConfigPathEnvVar)); len(files) > 0 && files[0] != "" {
		return files[0]
	}
	return clientcmd.RecommendedHomeFile
}

func loadOrNew(file string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.LoadFromFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return clientcmdapi.NewConfig(), nil
	case err != nil:
		return nil, fmt.Errorf("read kubeconfig %s (left as it is): %w", file, err)
	}
	return config, nil
}

// writeKubeconfig replaces the file at once and keeps it private.
func writeKubeconfig(file string, config *clientcmdapi.Config) error {
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".kubeconfig-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(data); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
