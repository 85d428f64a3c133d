//go:build !race

package zkmeta

const holdTime = 0
