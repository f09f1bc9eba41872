// Package infrastructure is the infrastructure provider (docs/adr/0046-infrastructure-provider.md): it serves a catalogue of Templates
// to workspaces, and has backends provide the instances that tenants create.
//
// This package puts the parts together and knows no backend.
package infrastructure
