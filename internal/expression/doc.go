// Package expression evaluates the small languages of a PublishedResource and of a Template: Go templates, paths into objects, and CEL.
//
// Expressions are written by the owner of a service, the objects are written by consumers. Everything here is a pure function
// of both: nothing reaches the environment, the network, the clock or a source of randomness, and time and memory have
// bounds that do not depend on the object.
package expression
