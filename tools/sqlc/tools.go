// Package sqlc pins the sqlc code generator. It is a module of its own because it carries PostgreSQL's parser
// and compiles it with cgo, which nothing else in Bursar needs.
package sqlc
