// Package workflowcheck pins the checker that finds what is not deterministic in workflow code.
package workflowcheck
