// Package api is the root of Atoll's API types: one folder per group and version below it, types only.
package api
