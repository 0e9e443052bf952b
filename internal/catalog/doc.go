// Package catalog reads the catalogue file and makes the database say what it says.
//
// The file names resource keys, sets of rules, products, ladders, organisation types, and which Stripe prices stand for
// which product. An object that it names is described whole: rules, sets or tiers that the file does not list are taken
// away. An object that it does not name is left as it is. Stripe's prices and products are only ever mapped or mapped
// anew, since a subscription may still be paid through one that the file no longer lists.
//
// A change is one transaction that holds the exclusive rendezvous: the catalogue, the mappings, and every pool that the
// change reaches are settled together. Where these are too many they are owed instead, and settled afterwards. [Plan] runs the
// whole of it and rolls back, so that what it shows is what would happen, of pools that would be owed their number; [Apply]
// runs it again, and stops if it would do anything else than was shown.
package catalog
