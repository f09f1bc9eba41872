// Package api is the root of Atoll's API types: one folder per group and version below it, types only.
package api

import (
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apimachinery/pkg/apis/meta/v1"
)
