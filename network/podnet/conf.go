package podnet

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

const confName = "10-proa.conflist"

// The parts of the CNI configuration, as the documentation of its plugins has them.
type confList struct {
	CNIVersion string   `json:"cniVersion"`
	Name       string   `json:"name"`
	Plugins    []plugin `json:"plugins"`
}

type plugin struct {
	Type             string          `json:"type"`
	Bridge           string          `json:"bridge,omitempty"`
	IsGateway        bool            `json:"isGateway,omitempty"`
	IsDefaultGateway bool            `json:"isDefaultGateway,omitempty"`
	IPMasq           *bool           `json:"ipMasq,omitempty"`
	HairpinMode      bool            `json:"hairpinMode,omitempty"`
	MTU              int             `json:"mtu,omitempty"`
	IPAM             *ipam           `json:"ipam,omitempty"`
	Capabilities     map[string]bool `json:"capabilities,omitempty"`
}

type ipam struct {
	Type    string         `json:"type"`
	DataDir string         `json:"dataDir"`
	Ranges  [][]ipamSubnet `json:"ranges"`
}

type ipamSubnet struct {
	Subnet  string `json:"subnet"`
	Gateway string `json:"gateway"`
}

// conf is the CNI configuration of the node. Host ports are not in it: the service proxy leads them to pods. The plugin that
// limits bandwidth, which pods only sometimes need, is left out where the distribution's package lacks it.
func (n *Network) conf(own []netip.Prefix, mtu int) (*confList, error) {
	for _, name := range []string{"bridge", "host-local"} {
		if !n.has(name) {
			return nil, fmt.Errorf("the CNI plugin %s is not in %v; install the package containernetworking-plugins", name, n.config.PluginDirs)
		}
	}
	no := false
	addresses := &ipam{Type: "host-local", DataDir: filepath.Join(n.config.DataDir, "addresses")}
	for _, p := range own {
		addresses.Ranges = append(addresses.Ranges, []ipamSubnet{{Subnet: p.String(), Gateway: p.Addr().Next().String()}})
	}
	list := &confList{CNIVersion: "1.0.0", Name: "proa", Plugins: []plugin{{
		Type: "bridge", Bridge: n.config.Bridge, IsGateway: true, IsDefaultGateway: true, IPMasq: &no, HairpinMode: true,
		MTU: mtu, IPAM: addresses,
	}}}
	if n.has("bandwidth") {
		list.Plugins = append(list.Plugins, plugin{Type: "bandwidth", Capabilities: map[string]bool{"bandwidth": true}})
	} else {
		n.log.Warn("CNI plugin missing", "plugin", "bandwidth", "dirs", n.config.PluginDirs)
	}
	return list, nil
}

func (n *Network) has(plugin string) bool {
	for _, dir := range n.config.PluginDirs {
		if info, err := os.Stat(filepath.Join(dir, plugin)); err == nil && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

func (n *Network) writeConf(own []netip.Prefix, mtu int) error {
	list, err := n.conf(own, mtu)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(n.config.ConfDir, confName), append(data, '\n'))
}
