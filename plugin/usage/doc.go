// Package usage is the library behind "kubectl kcp usage": it reads what the workspaces of a tree have used in a month, from each with the
// rights of the user, and prints it as a table or as CSV.
package usage
