// Package security attacks a real installation of three shards, a cache server and a front proxy with requests that
// tenants, unauthorized users and compromised servers could send. A test here states what attackers must not achieve, never
// how the servers prevent it; the unit tests of the packages cover that.
package security
