package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"proa/internal/pki"
)

// A user's kubeconfig keeps what it had, through a merge, a second one and the removal.
func TestMergeLeavesOthersAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	t.Setenv("KUBECONFIG", file)
	own := clientcmdapi.NewConfig()
	own.Clusters["work"] = &clientcmdapi.Cluster{Server: "https://work.example.com"}
	own.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: "t"}
	own.Contexts["work"] = &clientcmdapi.Context{Cluster: "work", AuthInfo: "me", Namespace: "team"}
	own.CurrentContext = "work"
	if err := clientcmd.WriteToFile(*own, file); err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	admin := filepath.Join(dir, "admin.kubeconfig")
	if err := adminKubeconfig(admin, "https://127.0.0.1:6443", ca); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := MergeKubeconfig(admin); err != nil {
			t.Fatal(err)
		}
		merged, err := clientcmd.LoadFromFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if merged.CurrentContext != ContextName || len(merged.Contexts) != 2 || merged.Contexts["work"].Namespace != "team" || merged.AuthInfos["me"].Token != "t" {
			t.Errorf("after the merge: current %q, contexts %v", merged.CurrentContext, merged.Contexts)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the kubeconfig: %v, %v; want 0600", info.Mode(), err)
	}
	// Another cluster that goes down does not take the context away.
	if other, err := pki.NewAuthority("other"); err != nil {
		t.Fatal(err)
	} else if err := adminKubeconfig(admin+".other", "https://127.0.0.1:7443", other); err != nil {
		t.Fatal(err)
	}
	for _, admin := range []string{admin + ".other", admin + ".missing"} {
		if err := UnmergeKubeconfig(admin); err != nil {
			t.Fatal(err)
		}
		if kept, err := clientcmd.LoadFromFile(file); err != nil || kept.CurrentContext != ContextName || kept.Contexts[ContextName] == nil {
			t.Errorf("%s took the context away: %v, %v", admin, kept, err)
		}
	}
	if err := UnmergeKubeconfig(admin); err != nil {
		t.Fatal(err)
	}
	left, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(left.Contexts) != 1 || left.Contexts["work"] == nil || left.CurrentContext != "" {
		t.Errorf("after the removal: current %q, contexts %v", left.CurrentContext, left.Contexts)
	}
}

// A kubeconfig that cannot be read is reported and left as it is.
func TestMergeRefusesDamagedFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	t.Setenv("KUBECONFIG", file)
	const damaged = "clusters: [\n"
	if err := os.WriteFile(file, []byte(damaged), 0o600); err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	admin := filepath.Join(dir, "admin.kubeconfig")
	if err := adminKubeconfig(admin, "https://127.0.0.1:6443", ca); err != nil {
		t.Fatal(err)
	}
	if _, err := MergeKubeconfig(admin); err == nil {
		t.Error("a damaged kubeconfig was accepted")
	}
	if data, _ := os.ReadFile(file); string(data) != damaged {
		t.Errorf("the damaged file was changed to %q", data)
	}
}

// The administrator's certificate is kept while it is good and replaced when the authority is another.
func TestAdminKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "admin.kubeconfig")
	read := func() string {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	first, err := pki.NewAuthority("one")
	if err != nil {
		t.Fatal(err)
	}
	write := func(ca *pki.Authority) string {
		if err := adminKubeconfig(file, "https://127.0.0.1:6443", ca); err != nil {
			t.Fatal(err)
		}
		return read()
	}
	a := write(first)
	if b := write(first); a != b {
		t.Error("a good kubeconfig was replaced")
	}
	second, err := pki.NewAuthority("two")
	if err != nil {
		t.Fatal(err)
	}
	if b := write(second); a == b {
		t.Error("a kubeconfig of another authority was kept")
	}
}
