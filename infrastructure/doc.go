// Package infrastructure is the infrastructure provider (docs/adr/0046-infrastructure-provider.md): it serves a catalogue of Templates
// to workspaces, and its backends provide the instances that tenants create.
//
// This package wires the parts together and does not depend on any backend.
package infrastructure
