// Package lockmetrics measures the locks of a process: how long they are waited for and held, which are refused, how the
// transactions end, and how full the lane of those that wait is.
//
// Every measurement has the path of its transaction and the class of its lock, names out of the code; an identity never. One
// made inside a sampled trace carries that trace as an exemplar: from a bar of the histogram to the webhook that waited.
package lockmetrics
