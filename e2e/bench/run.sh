#!/usr/bin/env bash
# The load harness end to end: firn, the probe and Apache Kafka taking turns.
#
#   e2e/bench/run.sh [PART...]      parts: hot fsync compressed cold idle restart cluster; no part: all
#
#   REPS=5          repetitions; MAX=5 seconds a run
#   KAFKA=0         without Apache Kafka (which e2e/setup.sh fetches)
#   ONLY=TEXT       only the cells whose name holds TEXT
#   OUT=FILE        result lines, appended
#   BESIDE=BINARY   another build of firn takes turns in the parts hot, fsync and
#                   compressed: is this commit slower than that one?
#
# Needs nothing outside the repository but what e2e/setup.sh installs. Read
# README.md in this folder before believing a figure.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD/e2e/bench
cache=${FIRN_CACHE:-$PWD/.cache}
work=${BENCH_DIR:-$cache/bench}
out=${OUT:-$work/results.jsonl}
reps=${REPS:-5} max=${MAX:-5}
mkdir -p "$work"
e2e/setup.sh >&2
go build -o "$work/harness" ./e2e/bench
go build -o "$work/probe" ./e2e/bench/probe
go build -o "$work/delay" ./e2e/bench/delay
go build -o "$work/firn" ./cmd/firn
h=$work/harness
pids=()
cleanup() { for p in "${pids[@]:-}"; do [ -n "$p" ] && kill "$p" 2>/dev/null || true; done; wait 2>/dev/null || true; pids=(); }
trap cleanup EXIT INT TERM

# start NAME COMMAND...: runs in the background with its output in NAME.log; sets $pid.
start() { local name=$1; shift; "$@" >"$work/$name.log" 2>&1 & pid=$!; pids+=("$pid"); }
wait_port() { for _ in $(seq 600); do (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return; sleep 0.1; done; echo "nobody listens on $1" >&2; exit 1; }

firn_port=19092 probe_port=19093 beside_port=19094 kafka_port=9092
# serve NAME BINARY PORT DIR [--set k=v ...]: sets $pid.
serve() {
  local name=$1 binary=$2 port=$3 dir=$4; shift 4
  start "$name" "$binary" serve --data "$dir" --set "listeners=PLAINTEXT://127.0.0.1:$port" \
    --set "advertised.listeners=PLAINTEXT://127.0.0.1:$port" --set admin.listener= "$@"
}
# start_firn DIR [--set k=v ...]
start_firn() { serve firn "$work/firn" $firn_port "$@"; firn_pid=$pid; wait_port $firn_port; }
start_kafka() {
  rm -rf "$work/kafka/data-"*
  mkdir -p "$work/kafka"; ln -sfn "$cache/kafka-4.3.1/lib" "$work/kafka/lib"
  kafka_pid=$("$here/kafka.sh" "$work/kafka" "$@" | head -1); pids+=("$kafka_pid"); wait_port $kafka_port; sleep 3
}

targets() { # the first is the one that ratios are to
  local t=""
  [ "${KAFKA:-1}" = 1 ] && t="kafka=127.0.0.1:$kafka_port@$kafka_pid;"
  t+="probe=127.0.0.1:$probe_port@$probe_pid;firn=127.0.0.1:$firn_port@$firn_pid"
  [ -z "${BESIDE:-}" ] || t+=";beside=127.0.0.1:$beside_port@$beside_pid"
  echo "$t"
}

suite() { # suite CELLS [flags]
  local cells=$1; shift
  "$h" suite -targets "$(targets)" -cells "$cells" -reps "$reps" -max-seconds "$max" -warm-mib 2000 -out "$out" -only "${ONLY:-}" "$@"
}

three() {
  rm -rf "$work/data" "$work/beside-data" "$work/probe-data"; mkdir -p "$work/probe-data"
  start probe "$work/probe" -port $probe_port -dir "$work/probe-data" -coalesce "$@"; probe_pid=$pid
  : >"$work/kafkas-defaults.properties" # an empty file: Kafka's own defaults, as Kafka has them
  start_firn "$work/data" --config "$work/kafkas-defaults.properties"
  if [ -n "${BESIDE:-}" ]; then
    serve beside "$BESIDE" $beside_port "$work/beside-data" --config "$work/kafkas-defaults.properties"
    beside_pid=$pid; wait_port $beside_port
  fi
  [ "${KAFKA:-1}" = 1 ] && start_kafka
  wait_port $probe_port
  if [ "${KAFKA:-1}" = 1 ]; then # warm the JVM
    "$h" produce -brokers 127.0.0.1:$kafka_port -topic warm -create -bytes 2000000000 -max-seconds 15 >/dev/null
    "$h" consume -brokers 127.0.0.1:$kafka_port -topic warm -delete -max-seconds 15 >/dev/null
  fi
}

hot() { three; suite raw,kgo,e2e; cleanup; }
fsync() { three -fsync pipe; suite fsync; cleanup; }
compressed() { three; suite compressed; cleanup; }

# cold: one consumer reads 2 GB in 4 partitions out of MinIO, 64 MiB segments,
# empty caches each time, at 0 and 30 ms before each GET; beside it raw range
# GETs, two consumers at once, 50 random seeks, and an archive in a directory.
cold_args=(--set log.retention.check.interval.ms=1000 --set remote.log.manager.task.interval.ms=1000 --set log.segment.delete.delay.ms=0
  --set archive.upload.max.interval.ms=86400000 --set archive.cache.disk.bytes=0)
minio_url='s3://bench/cold?endpoint=http://127.0.0.1:'
fill_cold() { # fill_cold DIR ADDR: 2 GB, and wait until all but the active segments have left the disk
  "$h" topic -brokers "$2" -topic cold -create -partitions 4 -topic-config "segment.bytes=67108864,local.retention.ms=${3:-1},retention.ms=${4:--1}${5:-}" >/dev/null
  "$h" produce -brokers "$2" -topic cold -partitions 4 -bytes 2000000000 -max-seconds 90 >/dev/null
  until [ "$(du -sm "$1" | cut -f1)" -lt 320 ]; do sleep 1; done
}
stop() { kill "$@" 2>/dev/null || true; wait "$@" 2>/dev/null || true; }
start_delay() { start delay "$work/delay" -listen 127.0.0.1:19100 -to http://127.0.0.1:19000 -get "$1"; delay_pid=$pid; wait_port 19100; }
read_cold() { # read_cold LABEL [flags]
  local label=$1; shift
  "$h" cold -brokers 127.0.0.1:$firn_port -topic cold -partitions 4 -seeks 0 -pids "$firn_pid" -label "$label" "$@" | tee -a "$out"
}
cold() {
  export AWS_ACCESS_KEY_ID=firn AWS_SECRET_ACCESS_KEY=firn-secret AWS_REGION=us-east-1
  rm -rf "$work/minio" "$work/cold"; mkdir -p "$work/minio"
  MINIO_ROOT_USER=$AWS_ACCESS_KEY_ID MINIO_ROOT_PASSWORD=$AWS_SECRET_ACCESS_KEY start minio "$cache/bin/minio" server --quiet --address 127.0.0.1:19000 "$work/minio"
  wait_port 19000
  start_firn "$work/cold" "${cold_args[@]}" --set "archive.url=${minio_url}19000&create=true"
  fill_cold "$work/cold/logs" 127.0.0.1:$firn_port
  stop "$firn_pid"
  for _ in $(seq "$reps"); do
    for delay in 0ms 30ms; do
      start_delay $delay
      echo "raw 4 x 8 MiB range GETs, +$delay"; "$h" ranges -store http://127.0.0.1:19100 -clients 4 -batch 8388608 -bytes 1000000000 -label "ranges+$delay" | tee -a "$out"
      for consumers in 1 2; do
        rm -rf "$work/cold/cache"
        start_firn "$work/cold" "${cold_args[@]}" --set "archive.url=${minio_url}19100"
        stop "$delay_pid"; start_delay $delay # counts from here
        echo "cold, $consumers consumer(s) at once, +$delay"
        [ $consumers = 1 ] || { read_cold "cold2+$delay" >/dev/null & other=$!; }
        read_cold "cold$consumers+$delay"
        [ $consumers = 1 ] || wait $other
        sleep 1.5; echo "  the store sent: $(tail -1 "$work/delay.log" | cut -d' ' -f3-)"
        [ $consumers = 2 ] || { echo "50 random seeks, +$delay"; read_cold "seek+$delay" -seeks 50; }
        stop "$firn_pid" "$delay_pid"
      done
    done
  done
  cleanup
  echo "the same from a directory"
  rm -rf "$work/cold" "$work/dir"
  start_firn "$work/cold" "${cold_args[@]}" --set "archive.url=file://$work/dir?create=true"
  fill_cold "$work/cold/logs" 127.0.0.1:$firn_port
  for _ in $(seq "$reps"); do
    stop "$firn_pid"; start_firn "$work/cold" "${cold_args[@]}" --set "archive.url=file://$work/dir"
    read_cold cold-directory -seeks 50
  done
  cleanup
  [ "${KAFKA:-1}" = 1 ] && kafka_cold
}

# kafka_cold: the same from Apache Kafka's tiered storage, which is a directory:
# no network at all, and then each answer 30 ms later.
kafka_cold() {
  local extra=",remote.storage.enable=true,file.delete.delay.ms=1000" lib="$cache/kafka-4.3.1/lib/*"
  for delay in 0ms 30ms; do
    if [ $delay = 30ms ]; then
      mkdir -p "$work/rsm"
      javac -cp "$lib:$work/kafka/lib-test/*" -d "$work/rsm" "$here/DelayedStorage.java" && jar cf "$work/rsm.jar" -C "$work/rsm" .
      export RSM_CLASS=DelayedStorage RSM_PATH="$work/kafka/lib-test/kafka-storage-4.3.1-test.jar:$work/rsm.jar"
    fi
    rm -rf "$work/kafka/remote"
    start_kafka tiered
    fill_cold "$work/kafka/data-1" 127.0.0.1:$kafka_port 1000 86400000 "$extra"
    for _ in $(seq "$reps"); do
      echo "Kafka, cold, a directory, +$delay"
      "$h" cold -brokers 127.0.0.1:$kafka_port -topic cold -partitions 4 -seeks 50 -pids "$kafka_pid" -label "kafka-cold+$delay" | tee -a "$out"
    done
    cleanup
  done
  unset RSM_CLASS RSM_PATH
}

# idle: memory with 1 000 partitions and 1 000 connections that do nothing.
idle() {
  rm -rf "$work/data"; start_firn "$work/data" --set archive.url=
  "$h" topic -brokers 127.0.0.1:$firn_port -topic idle -create -partitions 1000 >/dev/null
  "$h" idle -brokers 127.0.0.1:$firn_port -clients 1000 -max-seconds 10 -pids "$firn_pid" -label idle | tee -a "$out"
  cleanup
}

# restart: 10 000 partitions; a clean stop, then SIGKILL, to the first acknowledged record.
restart() {
  rm -rf "$work/data"; start_firn "$work/data" --set archive.url=
  "$h" topic -brokers 127.0.0.1:$firn_port -topic many -create -partitions 10000 >/dev/null
  "$h" topic -brokers 127.0.0.1:$firn_port -topic perf -create >/dev/null
  sleep 5
  for sig in TERM KILL; do
    local t0=$SECONDS
    kill -$sig "$firn_pid"; wait "$firn_pid" 2>/dev/null || true
    echo "stop by SIG$sig took $((SECONDS - t0)) s"
    serve firn "$work/firn" $firn_port "$work/data" --set archive.url=
    firn_pid=$pid
    "$h" first-ack -brokers 127.0.0.1:$firn_port -topic perf -pids "$firn_pid" -label "restart after SIG$sig" | tee -a "$out"
  done
  cleanup
}

# cluster: three brokers with ZooKeeper beside three of Apache Kafka's, acks=all.
cluster() {
  local pids_firn="" pids_kafka="" bootstrap="" n port
  rm -rf "$work/cluster"; mkdir -p "$work/cluster/zookeeper"
  sed -e "s|^dataDir=.*|dataDir=$work/cluster/zookeeper|" -e "s|^clientPort=.*|clientPort=19181|" deploy/cluster/zoo.cfg >"$work/cluster/zoo.cfg"
  start zookeeper java -Xmx256m -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
    org.apache.zookeeper.server.quorum.QuorumPeerMain "$work/cluster/zoo.cfg"
  wait_port 19181
  : >"$work/kafkas-defaults.properties"
  for n in 1 2 3; do
    port=$((firn_port + 100 * (n - 1)))
    start "firn-$n" "$work/firn" serve --data "$work/cluster/$n" --config "$work/kafkas-defaults.properties" \
      --set broker.id=$n --set zookeeper.connect=127.0.0.1:19181/firn --set "listeners=PLAINTEXT://127.0.0.1:$port" \
      --set "advertised.listeners=PLAINTEXT://127.0.0.1:$port" --set "admin.listener=127.0.0.1:$((port + 10))"
    pids_firn+=${pids_firn:++}$pid bootstrap+=${bootstrap:+,}127.0.0.1:$port
  done
  for n in 1 2 3; do until curl -sf "http://127.0.0.1:$((firn_port + 100 * (n - 1) + 10))/readyz" >/dev/null; do sleep 0.1; done; done
  local t="firn=$bootstrap@$pids_firn"
  if [ "${KAFKA:-1}" = 1 ]; then
    rm -rf "$work/kafka/data-"*; mkdir -p "$work/kafka"; ln -sfn "$cache/kafka-4.3.1/lib" "$work/kafka/lib"
    for pid in $(NODES=3 "$here/kafka.sh" "$work/kafka"); do pids+=("$pid"); pids_kafka+=${pids_kafka:++}$pid; done
    for port in 9092 9192 9292; do wait_port $port; done; sleep 5
    bootstrap=127.0.0.1:9092,127.0.0.1:9192,127.0.0.1:9292
    "$h" produce -brokers $bootstrap -topic warm -create -rf 3 -bytes 1000000000 -max-seconds 20 >/dev/null # the JVMs
    "$h" consume -brokers $bootstrap -topic warm -delete -max-seconds 20 >/dev/null
    t="kafka=$bootstrap@$pids_kafka;$t"
  fi
  "$h" suite -targets "$t" -cells cluster -rf 3 -reps "$reps" -max-seconds "$max" -warm-mib 2000 -out "$out" -only "${ONLY:-}"
  cleanup
}

for part in "${@:-hot fsync compressed cold idle restart cluster}"; do
  for p in $part; do echo "== $p"; "$p"; done
done
