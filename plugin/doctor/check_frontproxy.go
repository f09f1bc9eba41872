package doctor

import "time"

// frontProxy finds a front proxy that does not serve: while it does not, nothing else of the installation can be read through it.
func frontProxy(facts *Facts, _ Limits) []Finding {
	proxy := facts.Proxy
	switch {
	case proxy == nil:
		return nil
	case !proxy.Reachable:
		return []Finding{{
			Severity: SeverityError, Object: proxy.Name, Message: "does not answer at " + proxy.URL, Detail: proxy.Unreachable,
			NextStep: "Check the address in the kubeconfig, the Service and its load balancer, and the pods of the front proxy",
		}}
	case !proxy.Ready && !proxy.isRefusing():
		return []Finding{{
			Severity: SeverityError, Object: proxy.Name, Message: "is not ready",
			NextStep: "See the log of the front proxy: it names the shard that it has not read",
		}}
	}
	if facts.ShardsUnreadable {
		return []Finding{{
			Severity: SeverityError, Object: "root shard", Message: "does not answer through the front proxy: its Shards cannot be read", Detail: facts.ShardsError,
			NextStep: "Look at the pods of the root shard and its etcd, and at the log of the front proxy",
		}}
	}
	return nil
}

// servers returns all servers that have been asked, the front proxy first.
func (f *Facts) servers() []Server {
	var all []Server
	if f.Proxy != nil {
		all = append(all, *f.Proxy)
	}
	return append(all, f.Servers...)
}

// remaining returns how long something lasts, rounded.
func remaining(facts *Facts, until time.Time) time.Duration {
	left := until.Sub(facts.ReadAt)
	if left > time.Hour {
		return left.Round(time.Hour)
	}
	return left.Round(time.Second)
}
