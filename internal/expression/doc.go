// Package expression evaluates the small languages of a PublishedResource and of a Template: Go templates, paths into objects, and CEL.
//
// The owner of a service writes the expressions, and consumers write the objects. All functions are pure functions of both: they have no
// access to the environment, the network, the clock or a source of randomness, and their time and memory have bounds that do not depend
// on the object.
package expression
