// Command chaos runs Firn as real processes on loopback, loads it with clients,
// breaks it as a seed says, and has every promise checked in the end.
//
//	go run ./e2e/chaos -duration 10m -seed 7                three brokers, ZooKeeper, MinIO; all faults
//	go run ./e2e/chaos -brokers 1 -duration 2m              a single broker
//	go run ./e2e/chaos -faults kill,store -duration 1m      only some
//	go run ./e2e/chaos -duration 10m -slice 4m -dir DIR     stops after 4 minutes;
//	go run ./e2e/chaos -resume DIR                          goes on there, slice by slice
//	go run ./e2e/chaos -kills 200                           leader, follower, controller in turn
//
// A run is a directory:
//
//	run.json         what was asked for, how far it has come, what was counted
//	history/         a file for each partition (e2e/checker)
//	windows.txt      the faults, when they were and whether they promise availability
//	b1/ b2/ b3/ zk1/ minio/    the processes' own, and their logs beside them
//
// In the end faults are healed, producers get their last answers, readers read
// everything once more; then the brokers are stopped and each log is read from
// its own files, and the archive from the bucket alone. The run passes if the
// checker finds nothing, nobody panicked, and enough has happened for that to
// mean something: a run that did not exercise what it was for is invalid.
package main
