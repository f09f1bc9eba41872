// Package security attacks a real installation of three shards, a cache server and a front proxy with requests that
// tenants, unauthorized users and compromised servers could send. A test here states what must not be possible, never
// how it is prevented; the unit tests of the packages cover that.
package security
