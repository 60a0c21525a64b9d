// Measures a driver of claims as the kubelet uses it, from Go with the kubelet's own gRPC library.
//
//	claims measure UIDS SOCKET...   prepare and unprepare of each driver, as JSON
//	claims serve UIDS FOLDER        a floor: the helper of Go drivers (kubeletplugin), which reads
//	                                each claim, around a driver that keeps nothing; prints a line
//	                                when it listens at FOLDER/floor.sock
//	claims record UIDS FOLDER       the same at FOLDER/record.sock, around a driver that stores a
//	                                record of each claim with one fsync
//
// bench/claim_prepare.py builds and runs it. The calls to several drivers take turns, so that
// whatever else the machine does meanwhile hits all of them alike. UIDS is a JSON file: the uids of
// claims of namespace default, by name.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resource "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
)

const (
	driver = "floor.kube-rdma.io"
	node   = "node-1"
)

// An asked driver is one connection and what was measured on it.
type asked struct {
	client   dra.DRAPluginClient
	prepares []time.Duration
	returns  []time.Duration
}

// A figure is what is printed of one driver; times are in milliseconds.
type figure struct {
	PrepareP50Ms   float64 `json:"prepare_p50_ms"`
	PrepareP99Ms   float64 `json:"prepare_p99_ms"`
	UnprepareP50Ms float64 `json:"unprepare_p50_ms"`
	UnprepareP99Ms float64 `json:"unprepare_p99_ms"`
}

func main() {
	err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "claims:", err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) < 3 {
		return fmt.Errorf("usage: claims measure UIDS SOCKET... | serve|record UIDS FOLDER")
	}
	text, err := os.ReadFile(words[1])
	if err != nil {
		return err
	}
	var uids map[string]string
	if err := json.Unmarshal(text, &uids); err != nil {
		return fmt.Errorf("%s: %w", words[1], err)
	}
	switch words[0] {
	case "measure":
		return measure(uids, words[2:])
	case "serve":
		return serve(uids, words[2], "floor", "")
	case "record":
		return serve(uids, words[2], "record", words[2])
	}
	return fmt.Errorf("%s is neither measure nor serve", words[0])
}

func measure(uids map[string]string, sockets []string) error {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Minute)
	defer stop()
	drivers := make([]*asked, 0, len(sockets))
	for _, socket := range sockets {
		connection, err := grpc.NewClient(
			"unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return fmt.Errorf("%s: %w", socket, err)
		}
		drivers = append(drivers, &asked{client: dra.NewDRAPluginClient(connection)})
	}
	for name, uid := range uids {
		for number, one := range drivers {
			if err := one.turn(ctx, name, uid); err != nil {
				return fmt.Errorf("%s: %w", sockets[number], err)
			}
		}
	}
	figures := make([]figure, 0, len(drivers))
	for _, one := range drivers {
		figures = append(figures, one.figure())
	}
	return json.NewEncoder(os.Stdout).Encode(figures)
}

// turn has a claim prepared and given back.
func (one *asked) turn(ctx context.Context, name, uid string) error {
	claims := []*dra.Claim{{Namespace: "default", Name: name, Uid: uid}}
	begin := time.Now()
	prepared, err := one.client.NodePrepareResources(
		ctx, &dra.NodePrepareResourcesRequest{Claims: claims})
	one.prepares = append(one.prepares, time.Since(begin))
	if err != nil {
		return err
	}
	switch answer := prepared.Claims[uid]; {
	case answer == nil:
		return fmt.Errorf("no answer for %s", name)
	case answer.Error != "":
		return fmt.Errorf("%s: %s", name, answer.Error)
	case len(answer.Devices) != 1:
		return fmt.Errorf("%s has %d devices", name, len(answer.Devices))
	}
	begin = time.Now()
	returned, err := one.client.NodeUnprepareResources(
		ctx, &dra.NodeUnprepareResourcesRequest{Claims: claims})
	one.returns = append(one.returns, time.Since(begin))
	if err != nil {
		return err
	}
	if answer := returned.Claims[uid]; answer == nil || answer.Error != "" {
		return fmt.Errorf("%s was not given back: %v", name, answer)
	}
	return nil
}

func (one *asked) figure() figure {
	last := len(one.prepares) - 1
	slices.Sort(one.prepares)
	slices.Sort(one.returns)
	return figure{
		PrepareP50Ms:   milliseconds(one.prepares[last/2]),
		PrepareP99Ms:   milliseconds(one.prepares[last*99/100]),
		UnprepareP50Ms: milliseconds(one.returns[last/2]),
		UnprepareP99Ms: milliseconds(one.returns[last*99/100]),
	}
}

func milliseconds(duration time.Duration) float64 {
	return float64(duration) / float64(time.Millisecond)
}

// floor answers at once; where there is a folder, it stores a record of each claim before.
type floor struct{ folder string }

func serve(uids map[string]string, folder, name, records string) error {
	client, err := kubernetes.NewForConfig(
		&rest.Config{Host: "http://claims", Transport: stored(uids), QPS: -1})
	if err != nil {
		return err
	}
	ctx := context.Background()
	_, err = kubeletplugin.Start(ctx, floor{records},
		kubeletplugin.DriverName(name+"."+driver),
		kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(node),
		kubeletplugin.PluginDataDirectoryPath(folder),
		kubeletplugin.PluginSocket(name+".sock"),
		kubeletplugin.RegistrationService(false))
	if err != nil {
		return err
	}
	fmt.Println("listening")
	<-ctx.Done()
	return nil
}

func (f floor) PrepareResourceClaims(
	_ context.Context, claims []*resource.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	answer := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		if err := f.store(claim); err != nil {
			return nil, err
		}
		var devices []kubeletplugin.Device
		for _, given := range claim.Status.Allocation.Devices.Results {
			devices = append(devices, kubeletplugin.Device{
				Requests:     []string{given.Request},
				PoolName:     given.Pool,
				DeviceName:   given.Device,
				CDIDeviceIDs: []string{"kube-rdma.io/claim=" + string(claim.UID)},
			})
		}
		answer[claim.UID] = kubeletplugin.PrepareResult{Devices: devices}
	}
	return answer, nil
}

// store writes what a record of a claim holds, and returns when it is on the disk.
func (f floor) store(claim *resource.ResourceClaim) error {
	if f.folder == "" {
		return nil
	}
	file, err := os.Create(path.Join(f.folder, string(claim.UID)))
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(make([]byte, 400)); err != nil {
		return err
	}
	return file.Sync()
}

func (f floor) UnprepareResourceClaims(
	_ context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	answer := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		answer[claim.UID] = nil
		if f.folder != "" {
			answer[claim.UID] = os.Remove(path.Join(f.folder, string(claim.UID)))
		}
	}
	return answer, nil
}

func (floor) HandleError(_ context.Context, err error, text string) {
	fmt.Fprintln(os.Stderr, "claims:", text, err)
}

// stored is an API server that has every claim, in this process: nobody waits for a network.
type stored map[string]string

func (s stored) RoundTrip(request *http.Request) (*http.Response, error) {
	name := path.Base(request.URL.Path)
	claim := resource.ResourceClaim{
		TypeMeta: meta.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: meta.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(s[name]), ResourceVersion: "1"},
		Status: resource.ResourceClaimStatus{Allocation: &resource.AllocationResult{
			Devices: resource.DeviceAllocationResult{Results: []resource.DeviceRequestAllocationResult{
				{Request: "card", Driver: driver, Pool: node, Device: "card-0"}}}}},
	}
	text, err := json.Marshal(claim)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": []string{"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(text)),
		Request:    request,
	}, nil
}
