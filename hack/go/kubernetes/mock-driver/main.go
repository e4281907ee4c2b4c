// Command mock-driver serves Kubernetes' own end-to-end mock CSI driver on a unix socket.
//
// It is the independent driver of our tests: nobody here wrote it, so it cannot share our misunderstandings of CSI.
// Nothing belongs here but the way from flags to that driver; behaviour we want to invent goes into our own simulation.
package main

import (
	"context"
	"flag"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/driver"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

// onNode gives the driver a node id of its own: upstream uses the driver's name for it and offers no setting.
type onNode struct {
	service.Service
	id string
}

func (n onNode) NodeGetInfo(ctx context.Context, req *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	info, err := n.Service.NodeGetInfo(ctx, req)
	if err == nil {
		info.NodeId = n.id
	}
	return info, err
}

func main() {
	klog.InitFlags(nil) // --v=3 logs every call as one line of JSON
	endpoint := flag.String("endpoint", "/tmp/csi.sock", "path of the unix socket to serve on; a stale one is replaced")
	name := flag.String("driver-name", "mock.csi-node-sidecar.io", "the driver's name")
	node := flag.String("node-id", "mock-node", "the node id that NodeGetInfo answers")
	topology := flag.Bool("topology", true, "report topology: the one constant segment "+service.TopologyKey+"="+service.TopologyValue)
	flag.Parse()

	mock := onNode{service.New(service.Config{DriverName: *name, DisableAttach: true, EnableTopology: *topology}), *node}
	if err := os.Remove(*endpoint); err != nil && !os.IsNotExist(err) {
		klog.Exitf("cannot replace the socket %s: %v", *endpoint, err)
	}
	listener, err := net.Listen("unix", *endpoint)
	if err != nil {
		klog.Exitf("cannot listen on %s: %v", *endpoint, err)
	}
	server := driver.NewCSIDriver(&driver.CSIDriverServers{Controller: mock, Identity: mock, Node: mock})
	if err := server.Start(listener, nil); err != nil {
		klog.Exitf("cannot serve on %s: %v", *endpoint, err)
	}
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	<-stop.Done()
	server.Stop()
}
