package bench

import "k8s.io/client-go/kubernetes/scheme"

var serializer = scheme.Codecs.WithoutConversion()
