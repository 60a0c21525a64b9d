// Measures a device plugin as the kubelet uses it, from Go with the kubelet's own gRPC library.
//
//	allocate measure [-calls N] SOCKET...   first list and Allocate of each plugin, as JSON
//	allocate serve [-shares N] SOCKET       a bare plugin: what gRPC in Go alone costs;
//	                                        prints a line when it listens
//
// bench/allocate.py builds and runs it. The calls to several plugins take turns, so that whatever
// else the machine does meanwhile hits all of them alike.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// A plugin is one connection and what was measured on it.
type plugin struct {
	client  api.DevicePluginClient
	shares  []string
	first   time.Duration
	answers []time.Duration
}

// A figure is what is printed of one plugin; times are in milliseconds.
type figure struct {
	Shares      int     `json:"shares"`
	FirstListMs float64 `json:"first_list_ms"`
	P50Ms       float64 `json:"p50_ms"`
	P99Ms       float64 `json:"p99_ms"`
	MaxMs       float64 `json:"max_ms"`
}

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	flags := flag.NewFlagSet(command, flag.ExitOnError)
	calls := flags.Int("calls", 5000, "Allocate calls of each plugin")
	shares := flags.Int("shares", 1000, "shares of the bare plugin")
	flags.Parse(os.Args[min(2, len(os.Args)):])
	var err error
	switch {
	case command == "measure" && flags.NArg() > 0:
		err = measure(flags.Args(), *calls)
	case command == "serve" && flags.NArg() == 1:
		err = serve(flags.Arg(0), *shares)
	default:
		err = fmt.Errorf("usage: allocate measure [-calls N] SOCKET... | serve [-shares N] SOCKET")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "allocate:", err)
		os.Exit(1)
	}
}

func measure(sockets []string, calls int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	plugins := make([]*plugin, 0, len(sockets))
	for _, socket := range sockets {
		one, err := connect(ctx, socket)
		if err != nil {
			return fmt.Errorf("%s: %w", socket, err)
		}
		plugins = append(plugins, one)
	}
	for call := range calls {
		for number, one := range plugins {
			if err := one.allocate(ctx, call); err != nil {
				return fmt.Errorf("%s: %w", sockets[number], err)
			}
		}
	}
	figures := make([]figure, 0, len(plugins))
	for _, one := range plugins {
		figures = append(figures, one.figure())
	}
	return json.NewEncoder(os.Stdout).Encode(figures)
}

// connect dials a plugin, as the kubelet does after a registration, and reads its first list.
func connect(ctx context.Context, socket string) (*plugin, error) {
	connection, err := grpc.NewClient(
		"unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	one := &plugin{client: api.NewDevicePluginClient(connection)}
	if _, err := one.client.GetDevicePluginOptions(ctx, &api.Empty{}); err != nil {
		return nil, err
	}
	begin := time.Now()
	stream, err := one.client.ListAndWatch(ctx, &api.Empty{})
	if err != nil {
		return nil, err
	}
	list, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	one.first = time.Since(begin)
	for _, device := range list.Devices {
		one.shares = append(one.shares, device.ID)
	}
	if len(one.shares) == 0 {
		return nil, fmt.Errorf("it offers no share")
	}
	return one, nil
}

func (one *plugin) allocate(ctx context.Context, call int) error {
	share := one.shares[call%len(one.shares)]
	request := &api.AllocateRequest{
		ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{share}}},
	}
	begin := time.Now()
	answer, err := one.client.Allocate(ctx, request)
	one.answers = append(one.answers, time.Since(begin))
	if err != nil {
		return err
	}
	if len(answer.ContainerResponses) != 1 || len(answer.ContainerResponses[0].Devices) == 0 {
		return fmt.Errorf("share %s came without device nodes", share)
	}
	return nil
}

func (one *plugin) figure() figure {
	slices.Sort(one.answers)
	last := len(one.answers) - 1
	return figure{
		Shares:      len(one.shares),
		FirstListMs: milliseconds(one.first),
		P50Ms:       milliseconds(one.answers[last/2]),
		P99Ms:       milliseconds(one.answers[last*99/100]),
		MaxMs:       milliseconds(one.answers[last]),
	}
}

func milliseconds(duration time.Duration) float64 {
	return float64(duration) / float64(time.Millisecond)
}

// bare answers like the agent on a node with one card, and decides nothing.
type bare struct {
	api.UnimplementedDevicePluginServer
	list *api.ListAndWatchResponse
}

func serve(socket string, shares int) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	list := &api.ListAndWatchResponse{}
	for number := range shares {
		device := &api.Device{ID: fmt.Sprintf("bare-%d", number), Health: api.Healthy}
		list.Devices = append(list.Devices, device)
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, &bare{list: list})
	return server.Serve(listener)
}

func (*bare) GetDevicePluginOptions(
	context.Context, *api.Empty,
) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (b *bare) ListAndWatch(
	_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse],
) error {
	if err := stream.Send(b.list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (*bare) Allocate(
	_ context.Context, request *api.AllocateRequest,
) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for range request.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses,
			&api.ContainerAllocateResponse{Devices: []*api.DeviceSpec{
				node("/dev/infiniband/rdma_cm"), node("/dev/infiniband/uverbs0"),
			}})
	}
	return answer, nil
}

func node(path string) *api.DeviceSpec {
	return &api.DeviceSpec{ContainerPath: path, HostPath: path, Permissions: "rw"}
}
