// Package publishedresource is the library behind "kubectl kcp publishedresource": it says what is wrong with PublishedResources
// before they are applied, and prints what they publish. The server of the kubeconfig is the service cluster.
package publishedresource
