// Package moves is what drains and the rebalancer have in common: clients that read the shards of an installation, what is on one of them,
// and the LogicalClusterMigrations in root, and that create and delete such migrations; and the choice of a destination. It decides
// nothing about when something moves.
package moves
