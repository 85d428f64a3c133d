// Package scenariotest plays scenarios: text files that say what is done to a
// state machine and what comes of it, so that its tests read like stories.
//
//	# Who isn't in sync does not hold up the others.
//	append 1 n=3 acks=all
//	fetch  2
//	----
//	1 leads in 1: 0..3 hw=3
//
// Blocks are parted by an empty line. A block is commands, one a line, then a line
// of dashes and what they print; without the dashes they print nothing. A line
// that begins with # says why. The machine goes on from block to block.
//
// It is imported by tests alone, and knows no machine.
package scenariotest
