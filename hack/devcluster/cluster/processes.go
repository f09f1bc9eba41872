package cluster

import (
	"fmt"
	"strings"
)

// processes returns the cluster's programs with their arguments, by name.
func (c *Cluster) processes() map[string]process {
	all := map[string]process{}
	add := func(path, name string, args ...string) {
		all[name] = process{name: name, path: path, args: args}
	}
	add("/usr/bin/containerd", "containerd", "--config", c.config("containerd.toml"), "--address", c.containerdSocket())
	add(c.Tools.Binary("etcd"), "etcd", c.etcdArgs()...)
	add(c.Tools.Binary("kube-apiserver"), "kube-apiserver", c.apiServerArgs()...)
	add(c.Tools.Binary("kube-controller-manager"), "kube-controller-manager", c.controllerManagerArgs()...)
	add(c.Tools.Binary("kube-scheduler"), "kube-scheduler",
		"--kubeconfig="+c.userKubeconfig("kube-scheduler"), "--leader-elect=false", "--secure-port=0")
	add(c.Tools.Binary("kubelet"), "kubelet",
		"--config="+c.config("kubelet.yaml"), "--kubeconfig="+c.userKubeconfig("kubelet"), "--root-dir="+c.path("kubelet"),
		"--hostname-override="+NodeName, "--node-ip="+nodeIP)
	add(c.Tools.Binary("kube-proxy"), "kube-proxy", "--config="+c.config("kube-proxy.yaml"))
	add(c.Tools.Binary("certmanager"), "certmanager", "--kubeconfig="+c.userKubeconfig("certmanager"))
	add(c.Tools.Binary("hostpath"), "hostpath", "--kubeconfig="+c.userKubeconfig("hostpath"), "--folder="+c.path("volumes"))
	return all
}

// etcdArgs disables fsync, which avoids waits for the disk: a machine failure may lose the data of the development
// cluster.
func (c *Cluster) etcdArgs() []string {
	client := fmt.Sprintf("https://127.0.0.1:%d", etcdPort)
	peer := fmt.Sprintf("https://127.0.0.1:%d", etcdPeerPort)
	args := []string{
		"--name=" + NodeName, "--data-dir=" + c.path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + NodeName + "=" + peer,
		"--auto-compaction-retention=5m", "--log-level=warn",
	}
	for _, prefix := range []string{"--", "--peer-"} {
		args = append(args,
			prefix+"cert-file="+c.pki("etcd.crt"), prefix+"key-file="+c.pki("etcd.key"),
			prefix+"trusted-ca-file="+c.pki("ca.crt"), prefix+"client-cert-auth")
	}
	return args
}

func (c *Cluster) apiServerArgs() []string {
	return []string{
		fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", etcdPort),
		"--etcd-cafile=" + c.pki("ca.crt"),
		"--etcd-certfile=" + c.pki("apiserver-etcd-client.crt"), "--etcd-keyfile=" + c.pki("apiserver-etcd-client.key"),
		// Not loopback: pods connect to the advertised address through the kubernetes Service.
		"--bind-address=" + nodeIP, "--advertise-address=" + nodeIP, fmt.Sprintf("--secure-port=%d", apiServerPort),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--client-ca-file=" + c.pki("ca.crt"),
		"--tls-cert-file=" + c.pki("apiserver.crt"), "--tls-private-key-file=" + c.pki("apiserver.key"),
		"--kubelet-certificate-authority=" + c.pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + c.pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + c.pki("apiserver-kubelet-client.key"),
		"--requestheader-client-ca-file=" + c.pki("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pki("front-proxy-client.crt"), "--proxy-client-key-file=" + c.pki("front-proxy-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.pki("service-accounts.pub"),
		"--service-account-signing-key-file=" + c.pki("service-accounts.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged", "--profiling=false",
	}
}

// controllers are the controllers that the operator's objects and tests need; the others would only use memory.
var controllers = []string{
	"clusterrole-aggregation-controller", "daemonset-controller", "deployment-controller", "disruption-controller",
	"endpoints-controller", "endpointslice-controller", "ephemeral-volume-controller", "garbage-collector-controller",
	"job-controller", "namespace-controller", "node-lifecycle-controller", "persistentvolume-binder-controller",
	"persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller", "pod-garbage-collector-controller",
	"replicaset-controller", "root-ca-certificate-publisher-controller", "serviceaccount-controller",
	"serviceaccount-token-controller", "statefulset-controller", "taint-eviction-controller",
}

func (c *Cluster) controllerManagerArgs() []string {
	return []string{
		"--kubeconfig=" + c.userKubeconfig("kube-controller-manager"), "--leader-elect=false", "--secure-port=0",
		"--use-service-account-credentials", // the stock RBAC rules name each controller's own account
		"--controllers=" + strings.Join(controllers, ","),
		"--root-ca-file=" + c.pki("ca.crt"), "--service-account-private-key-file=" + c.pki("service-accounts.key"),
		"--kube-api-qps=100", "--kube-api-burst=200", "--profiling=false",
	}
}
