// A meta-plugin for tests: what Multus publishes of its contract with the plugins that it calls, and
// no more. The cluster's network comes first, then one delegate for each name in the pod's annotation,
// as net1, net2 and so on; results become the annotation network-status; DEL goes backwards, from what
// ADD has noted. Written against the Network Plumbing Working Group's specification, version 1.3.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	result "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

const (
	annotation = "k8s.v1.cni.cncf.io/networks"
	status     = "k8s.v1.cni.cncf.io/network-status"
	notes      = "/var/lib/cni/meta_plugin"
)

type conf struct {
	ClusterNetwork string `json:"clusterNetwork"`
	Kubeconfig     string `json:"kubeconfig"`
	BinDir         string `json:"binDir"`
}

type delegate struct {
	Name, IfName string
	Config       []byte
}

type entry struct {
	Name      string            `json:"name"`
	Interface string            `json:"interface,omitempty"`
	IPs       []string          `json:"ips,omitempty"`
	Mac       string            `json:"mac,omitempty"`
	Default   bool              `json:"default,omitempty"`
	DNS       map[string]string `json:"dns"`
}

func main() {
	funcs := skel.CNIFuncs{Add: add, Del: del}
	if isCello() {
		funcs = skel.CNIFuncs{Add: celloAdd, Del: celloDel}
	}
	skel.PluginMainFuncs(funcs, version.All, "a meta-plugin for tests")
}

func add(args *skel.CmdArgs) error {
	meta, cluster, err := load(args)
	if err != nil {
		return err
	}
	api, err := connect(meta.Kubeconfig)
	if err != nil {
		return err
	}
	delegates, err := api.delegates(args)
	if err != nil {
		return err
	}
	if err := note(args, delegates); err != nil {
		return err
	}
	cni := libcni.NewCNIConfig([]string{meta.BinDir}, nil)
	first, err := cni.AddNetworkList(context.Background(), cluster, runtime(args, args.IfName))
	if err != nil {
		return err
	}
	told := []entry{entryOf(cluster.Name, first, true)}
	for _, one := range delegates {
		list, err := listOf(one.Config)
		if err != nil {
			return err
		}
		made, err := cni.AddNetworkList(context.Background(), list, runtime(args, one.IfName))
		if err != nil {
			_ = del(args)
			return fmt.Errorf("network %s: %w", one.Name, err)
		}
		told = append(told, entryOf(one.Name, made, false))
	}
	if err := api.tell(args, told); err != nil {
		return err
	}
	return types.PrintResult(first, first.Version())
}

func del(args *skel.CmdArgs) error {
	meta, cluster, err := load(args)
	if err != nil {
		return err
	}
	return undo(args, cluster, meta.BinDir)
}

// undo takes back what was noted, the last first, then the cluster's network.
func undo(args *skel.CmdArgs, cluster *libcni.NetworkConfigList, binDir string) error {
	cni := libcni.NewCNIConfig([]string{binDir}, nil)
	delegates := noted(args)
	var failed []string
	for at := len(delegates) - 1; at >= 0; at-- {
		list, err := listOf(delegates[at].Config)
		if err == nil {
			err = cni.DelNetworkList(context.Background(), list, runtime(args, delegates[at].IfName))
		}
		if err != nil {
			failed = append(failed, err.Error())
		}
	}
	if err := cni.DelNetworkList(context.Background(), cluster, runtime(args, args.IfName)); err != nil {
		failed = append(failed, err.Error())
	}
	if failed != nil {
		return fmt.Errorf("%s", strings.Join(failed, " / "))
	}
	return os.RemoveAll(filepath.Join(notes, args.ContainerID))
}

func load(args *skel.CmdArgs) (*conf, *libcni.NetworkConfigList, error) {
	meta := &conf{}
	if err := json.Unmarshal(args.StdinData, meta); err != nil {
		return nil, nil, err
	}
	cluster, err := libcni.ConfListFromFile(meta.ClusterNetwork)
	return meta, cluster, err
}

// listOf reads a list, or a lone plugin as the list that libcni makes of it.
func listOf(config []byte) (*libcni.NetworkConfigList, error) {
	if bytes.Contains(config, []byte(`"plugins"`)) {
		return libcni.NetworkConfFromBytes(config)
	}
	plugin, err := libcni.ConfFromBytes(config)
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(plugin)
}

func runtime(args *skel.CmdArgs, ifName string) *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{ContainerID: args.ContainerID, NetNS: args.Netns, IfName: ifName}
	for _, pair := range strings.Split(args.Args, ";") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			rt.Args = append(rt.Args, [2]string{key, value})
		}
	}
	return rt
}

func argument(args *skel.CmdArgs, name string) string {
	for _, pair := range runtime(args, "").Args {
		if pair[0] == name {
			return pair[1]
		}
	}
	return ""
}

func note(args *skel.CmdArgs, delegates []delegate) error {
	if err := os.MkdirAll(notes, 0o700); err != nil {
		return err
	}
	text, _ := json.Marshal(delegates)
	return os.WriteFile(filepath.Join(notes, args.ContainerID), text, 0o600)
}

func noted(args *skel.CmdArgs) (delegates []delegate) {
	text, _ := os.ReadFile(filepath.Join(notes, args.ContainerID))
	_ = json.Unmarshal(text, &delegates)
	return delegates
}

func entryOf(name string, made types.Result, isDefault bool) entry {
	told := entry{Name: name, Default: isDefault, DNS: map[string]string{}}
	found, err := result.NewResultFromResult(made)
	if err != nil {
		return told
	}
	for at, link := range found.Interfaces {
		if link.Sandbox == "" {
			continue
		}
		told.Interface, told.Mac = link.Name, link.Mac
		for _, ip := range found.IPs {
			if ip.Interface != nil && *ip.Interface == at {
				told.IPs = append(told.IPs, ip.Address.IP.String())
			}
		}
	}
	return told
}

type server struct {
	client *http.Client
	url    string
}

// connect reads a kubeconfig that is JSON with everything in it, as the lab writes it.
func connect(path string) (*server, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Cert []byte `json:"client-certificate-data"`
				Key  []byte `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(file.Users[0].User.Cert, file.Users[0].User.Key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(file.Clusters[0].Cluster.CA)
	secured := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: secured}}
	return &server{client, file.Clusters[0].Cluster.Server}, nil
}

func (api *server) call(method, path string, body []byte, into any) error {
	request, err := http.NewRequest(method, api.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := api.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

func pod(args *skel.CmdArgs) string {
	namespace, name := argument(args, "K8S_POD_NAMESPACE"), argument(args, "K8S_POD_NAME")
	return "/api/v1/namespaces/" + namespace + "/pods/" + name
}

func (api *server) delegates(args *skel.CmdArgs) ([]delegate, error) {
	var found struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := api.call("GET", pod(args), nil, &found); err != nil {
		return nil, err
	}
	var delegates []delegate
	for _, name := range strings.Split(found.Metadata.Annotations[annotation], ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		namespace := argument(args, "K8S_POD_NAMESPACE")
		var object struct{ Spec struct{ Config string } }
		path := "/apis/k8s.cni.cncf.io/v1/namespaces/" + namespace + "/network-attachment-definitions/"
		if err := api.call("GET", path+name, nil, &object); err != nil {
			return nil, err
		}
		var config map[string]any
		if err := json.Unmarshal([]byte(object.Spec.Config), &config); err != nil {
			return nil, err
		}
		if _, ok := config["name"]; !ok {
			config["name"] = name
		}
		text, _ := json.Marshal(config)
		ifName := fmt.Sprintf("net%d", len(delegates)+1)
		delegates = append(delegates, delegate{namespace + "/" + name, ifName, text})
	}
	return delegates, nil
}

func (api *server) tell(args *skel.CmdArgs, told []entry) error {
	text, _ := json.Marshal(told)
	annotations := map[string]any{"annotations": map[string]string{status: string(text)}}
	patch, _ := json.Marshal(map[string]any{"metadata": annotations})
	return api.call("PATCH", pod(args)+"/status", patch, &struct{}{})
}
