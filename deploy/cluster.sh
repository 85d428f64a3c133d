#!/usr/bin/env bash
# Three brokers, ZooKeeper and MinIO on loopback, as plain processes, until Ctrl-C.
# Data and logs are in .cache/cluster, and are there again at the next start;
# `make clean` removes them. e2e/setup.sh installs what it needs.
#
#   PORT=9092         the first broker's; the others' are the next two
#   SESSION_MS=6000   zookeeper.session.timeout.ms: a killed leader is replaced after it
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${FIRN_CACHE:-$PWD/.cache}
dir=${CLUSTER_DIR:-$cache/cluster}
port=${PORT:-9092} zk=${ZOOKEEPER_PORT:-2181} store=${MINIO_PORT:-9000} admin=${ADMIN_PORT:-9644}
export AWS_ACCESS_KEY_ID=firn AWS_SECRET_ACCESS_KEY=firn-secret
mkdir -p "$dir"/{zookeeper,minio,pids,log}

pids=()
stop() {
  trap '' INT TERM
  echo "stopping"
  # Brokers first, each in order, so that nothing is to be recovered.
  for p in $(ls "$dir/pids"); do kill "$(cat "$dir/pids/$p")" 2>/dev/null || true; done
  for p in $(ls "$dir/pids"); do while kill -0 "$(cat "$dir/pids/$p")" 2>/dev/null; do sleep 0.1; done; done
  kill "${pids[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
}

start() { # start NAME COMMAND...
  local name=$1; shift
  "$@" >>"$dir/log/$name.log" 2>&1 &
  pid=$!
}
listening() { # listening NAME PORT: waits for it
  for _ in $(seq 300); do
    (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && return
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  echo "$1 does not listen on port $2:" >&2; tail -5 "$dir/log/$1.log" >&2; exit 1
}

rm -f "$dir/pids"/*
trap stop EXIT
trap 'exit 0' INT TERM

sed -e "s|^dataDir=.*|dataDir=$dir/zookeeper|" -e "s|^clientPort=.*|clientPort=$zk|" deploy/cluster/zoo.cfg >"$dir/zoo.cfg"
echo "clientPortAddress=127.0.0.1" >>"$dir/zoo.cfg"
start zookeeper java -Xmx256m -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
  org.apache.zookeeper.server.quorum.QuorumPeerMain "$dir/zoo.cfg"
pids+=("$pid"); listening zookeeper "$zk"
MINIO_ROOT_USER=$AWS_ACCESS_KEY_ID MINIO_ROOT_PASSWORD=$AWS_SECRET_ACCESS_KEY \
  start minio "$cache/bin/minio" server --quiet --address "127.0.0.1:$store" --console-address "127.0.0.1:$((store + 1))" "$dir/minio"
pids+=("$pid"); listening minio "$store"

echo "building firn"
go build -o "$dir/firn" ./cmd/firn
broker() { # broker N
  local at=127.0.0.1:$((port + $1 - 1))
  start "firn-$1" "$dir/firn" serve --data "$dir/firn-$1" \
    --set "broker.id=$1" --set "zookeeper.connect=127.0.0.1:$zk/firn" --set "zookeeper.session.timeout.ms=${SESSION_MS:-6000}" \
    --set "listeners=PLAINTEXT://$at" --set "advertised.listeners=PLAINTEXT://$at" --set "admin.listener=127.0.0.1:$((admin + $1 - 1))" \
    --set default.replication.factor=3 --set min.insync.replicas=2 \
    --set "archive.url=s3://events?endpoint=http://127.0.0.1:$store&create=true"
  echo "$pid" >"$dir/pids/firn-$1"
}
for n in 1 2 3; do broker $n; done
for n in 1 2 3; do
  pid=$(cat "$dir/pids/firn-$n"); listening "firn-$n" $((port + n - 1))
  until curl -sf "http://127.0.0.1:$((admin + n - 1))/readyz" >/dev/null; do kill -0 "$pid"; sleep 0.1; done
done
bootstrap=127.0.0.1:$port,127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2))
cat <<T

Three brokers are up: $bootstrap
ZooKeeper 127.0.0.1:$zk/firn, MinIO http://127.0.0.1:$store (bucket events), metrics on ports $admin to $((admin + 2)).
Data and logs: $dir. Ctrl-C stops all.

In another terminal:

  export FIRN_BROKERS=$bootstrap; alias firn=$dir/firn
  firn cluster status
  firn topic create events --partitions 6
  seq 1000000 | firn produce events
  kill -9 \$(cat $dir/pids/firn-1)        # it comes back in five seconds; nothing is lost
  firn consume events | wc -l

T
# A broker that ends is started again, as a service manager would.
while sleep 5; do
  for n in 1 2 3; do
    kill -0 "$(cat "$dir/pids/firn-$n")" 2>/dev/null && continue
    wait "$(cat "$dir/pids/firn-$n")" 2>/dev/null || true
    echo "$(date +%T) broker $n has ended (log: $dir/log/firn-$n.log); starting it again"
    broker "$n"
  done
  for p in "${pids[@]}"; do kill -0 "$p" 2>/dev/null || { echo "ZooKeeper or MinIO has ended; logs in $dir/log" >&2; exit 1; }; done
done
