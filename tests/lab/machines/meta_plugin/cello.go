// The same binary under the name cello-meta: what Volcengine's Cello publishes of its meta plugin
// (volcengine/cello, pkg/cni/plugins/meta), and no more. The cluster's network comes first, then the
// configuration of the node that each block of the pod's annotation names, as eth1, eth2 and so on.
// The share comes from the kubelet, of the resource that the configuration's block `meta` names.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
)

const (
	podNetworks = "k8s.volcengine.com/pod-networks"
	confFolder  = "/etc/cni/net.d"
	binFolder   = "/opt/cni/bin"
	checkpoint  = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
)

type celloConf struct {
	DefaultCni string `json:"defaultCni"`
	Runtime    struct {
		Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
	} `json:"runtimeConfig"`
}

type block struct {
	CniConf struct {
		Name string `json:"name"`
	} `json:"cniConf"`
}

type allocated struct {
	Data struct {
		PodDeviceEntries []struct {
			PodUID       string
			ResourceName string
			DeviceIDs    map[string][]string
		}
	}
}

func isCello() bool { return filepath.Base(os.Args[0]) == "cello-meta" }

func celloAdd(args *skel.CmdArgs) error {
	conf, cluster, err := celloLoad(args)
	if err != nil {
		return err
	}
	var blocks []block
	if text := conf.Runtime.Annotations[podNetworks]; text != "" {
		if err := json.Unmarshal([]byte(text), &blocks); err != nil {
			return err
		}
	}
	cni := libcni.NewCNIConfig([]string{binFolder}, nil)
	first, err := cni.AddNetworkList(context.Background(), cluster, runtime(args, args.IfName))
	if err != nil {
		return err
	}
	var made []delegate
	used := map[string]int{}
	for at, one := range blocks {
		list, err := libcni.LoadConfList(confFolder, one.CniConf.Name)
		if err != nil {
			return celloFailed(args, err)
		}
		rt := runtime(args, fmt.Sprintf("eth%d", at+1))
		resource := resourceOf(list)
		shares := sharesOf(argument(args, "K8S_POD_UID"), resource)
		if used[resource] < len(shares) {
			rt.CapabilityArgs = map[string]any{"deviceID": shares[used[resource]]}
			used[resource]++
		}
		made = append(made, delegate{one.CniConf.Name, rt.IfName, list.Bytes})
		if err := note(args, made); err != nil {
			return err
		}
		if _, err := cni.AddNetworkList(context.Background(), list, rt); err != nil {
			return celloFailed(args, fmt.Errorf("network %s: %w", one.CniConf.Name, err))
		}
	}
	return types.PrintResult(first, first.Version())
}

func celloFailed(args *skel.CmdArgs, err error) error {
	_ = celloDel(args)
	return err
}

func celloDel(args *skel.CmdArgs) error {
	_, cluster, err := celloLoad(args)
	if err != nil {
		return err
	}
	return undo(args, cluster, binFolder)
}

func celloLoad(args *skel.CmdArgs) (*celloConf, *libcni.NetworkConfigList, error) {
	conf := &celloConf{}
	if err := json.Unmarshal(args.StdinData, conf); err != nil {
		return nil, nil, err
	}
	cluster, err := libcni.LoadConfList(confFolder, conf.DefaultCni)
	return conf, cluster, err
}

func resourceOf(list *libcni.NetworkConfigList) string {
	var plugin struct {
		Meta struct {
			ResourceName string `json:"resourceName"`
		} `json:"meta"`
	}
	_ = json.Unmarshal(list.Plugins[0].Bytes, &plugin)
	return plugin.Meta.ResourceName
}

func sharesOf(uid, resource string) (shares []string) {
	var file allocated
	text, _ := os.ReadFile(checkpoint)
	_ = json.Unmarshal(text, &file)
	for _, entry := range file.Data.PodDeviceEntries {
		if entry.PodUID == uid && entry.ResourceName == resource {
			for _, ids := range entry.DeviceIDs {
				shares = append(shares, ids...)
			}
		}
	}
	return shares
}
