// Keeps a node's CNI configuration as Cilium's agent does, and nothing else of the agent: the
// configuration manager of the agent, in the agent's own hive, with the agent's own flags.
//
//	cilium --write-cni-conf-when-ready=/etc/cni/net.d/05-cilium.conflist --cni-exclusive
package main

import (
	"fmt"
	"os"

	"github.com/cilium/hive/cell"
	"github.com/spf13/cobra"

	"github.com/cilium/cilium/daemon/cmd/cni"
	"github.com/cilium/cilium/pkg/hive"
	"github.com/cilium/cilium/pkg/logging"
	"github.com/cilium/cilium/pkg/option"
)

func main() {
	agent := hive.New(
		cell.Provide(func() *option.DaemonConfig { return &option.DaemonConfig{} }),
		cni.Cell,
		cell.Invoke(func(cni.CNIConfigManager) {}),
	)
	command := &cobra.Command{
		Use:  "cilium",
		RunE: func(*cobra.Command, []string) error { return agent.Run(logging.DefaultSlogLogger) },
	}
	agent.RegisterFlags(command.Flags())
	if err := command.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
