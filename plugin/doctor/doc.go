// Package doctor holds "kubectl kcp doctor", which looks for what is wrong with an installation, and changes nothing. It first reads facts,
// with few requests, and then decides about them: each check is a pure function in a file of its own. The facts are also what a bundle
// contains, so their fields are a list of what may leave the installation.
package doctor
