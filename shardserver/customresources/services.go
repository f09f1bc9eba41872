package customresources

import (
	"fmt"
	"net/url"
)

// noServices refuses to find the address of a Service for a conversion webhook. Logical clusters have no Services, and
// a name that were resolved where the shard runs would let a tenant reach into the cluster around it.
type noServices struct{}

// ResolveEndpoint implements webhook.ServiceResolver.
func (noServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("service %s/%s cannot be reached: conversion webhooks need a url", namespace, name)
}
