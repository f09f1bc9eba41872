// Package celcost counts the real work of tenants' expressions. The libraries count a comparison, a membership test or the formatting of
// a value by its number of elements. A value whose elements are lists or maps, which share their content many times over, has far more to
// compare than elements, and such a call cannot be interrupted. So:
//
//   - A call is priced before it runs, by the deep size of its arguments, and by the deep size of its result for functions whose
//     result may be larger than their arguments. A price above the limit of an evaluation ends the evaluation, like the limit itself.
//   - The price is part of the counted cost of the evaluation.
//   - After an expensive call, and before it, the evaluation ends if the context has ended.
//
// Importing this package applies it to every environment that starts from environment.MustBaseEnvSet: rules of
// definitions, policies, match conditions, and rules of authentication. Environments of other origin use ProgramOptions.
//
// Upstream has no extension point for the base environment. The package needs one: an option of
// environment.MustBaseEnvSet, or a deep size in cel-go's own cost.
package celcost
