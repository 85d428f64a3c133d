#!/usr/bin/env bash
# Three brokers, ZooKeeper and MinIO on loopback, as plain processes, until Ctrl-C.
# Whatever ends is started again, so that faults can be tried: each process' id is in
# the folder pids; one whose file there is removed stays away, until it is touched. Data and logs are in .cache/cluster, and are there again at the next
# start; `make clean` removes them. e2e/setup.sh installs what it needs.
#
#   PORT=9092         the first broker's; the others' are the next two
#   SESSION_MS=6000   zookeeper.session.timeout.ms: a killed leader is replaced after it
#   OUTAGE_S=30       how long ZooKeeper or MinIO stays away once it has ended
#   ZOOKEEPER_PORT=2181  MINIO_PORT=9000 (and the next)  ADMIN_PORT=9644 (and the next two)
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${FIRN_CACHE:-$PWD/.cache}
dir=${CLUSTER_DIR:-$cache/cluster}
port=${PORT:-9092} zk=${ZOOKEEPER_PORT:-2181} store=${MINIO_PORT:-9000} admin=${ADMIN_PORT:-9644}
outage=${OUTAGE_S:-30}
export AWS_ACCESS_KEY_ID=firn AWS_SECRET_ACCESS_KEY=firn-secret

for p in "$zk" "$store" "$((store + 1))" "$port" "$((port + 1))" "$((port + 2))" "$admin" "$((admin + 1))" "$((admin + 2))"; do
  (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || continue
  echo "port $p is taken: stop what listens there, or set PORT, ZOOKEEPER_PORT, MINIO_PORT or ADMIN_PORT" >&2; exit 1
done
mkdir -p "$dir"/{zookeeper,minio,pids,log}
rm -f "$dir/pids"/*

start() { # start NAME COMMAND...
  local name=$1; shift
  set -m # in a group of its own: Ctrl-C is for this script, which stops all in order
  "$@" >>"$dir/log/$name.log" 2>&1 &
  echo $! >"$dir/pids/$name"
  disown # what becomes of it, the end of this script tells
  set +m
}
alive() { kill -0 "$(cat "$dir/pids/$1")" 2>/dev/null; }
stop() { # Brokers first, each in order, so that nothing is to be recovered.
  trap '' INT TERM HUP
  echo "stopping"
  local names
  for names in "firn-1 firn-2 firn-3" "minio zookeeper"; do
    for n in $names; do [ ! -e "$dir/pids/$n" ] || kill "$(cat "$dir/pids/$n")" 2>/dev/null || true; done
    for n in $names; do while [ -e "$dir/pids/$n" ] && alive "$n"; do sleep 0.1; done; done
  done
}
failed() { echo "$1; the end of $dir/log/$2.log:" >&2; tail -5 "$dir/log/$2.log" >&2; exit 1; }
listening() { # listening NAME PORT: waits for it
  for _ in $(seq 300); do
    (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && return
    alive "$1" || failed "$1 has ended" "$1"
    sleep 0.1
  done
  failed "$1 does not listen on port $2" "$1"
}
launch() { # launch NAME
  case $1 in
  zookeeper)
    start zookeeper java -Xmx256m -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
      org.apache.zookeeper.server.quorum.QuorumPeerMain "$dir/zoo.cfg" ;;
  minio)
    MINIO_ROOT_USER=$AWS_ACCESS_KEY_ID MINIO_ROOT_PASSWORD=$AWS_SECRET_ACCESS_KEY \
      start minio "$cache/bin/minio" server --quiet --address "127.0.0.1:$store" --console-address "127.0.0.1:$((store + 1))" "$dir/minio" ;;
  firn-*)
    local n=${1#firn-}
    local at=127.0.0.1:$((port + n - 1))
    start "$1" "$dir/firn" serve --data "$dir/$1" \
      --set "broker.id=$n" --set "zookeeper.connect=127.0.0.1:$zk/firn" --set "zookeeper.session.timeout.ms=${SESSION_MS:-6000}" \
      --set zookeeper.connection.timeout.ms=18000 \
      --set "listeners=PLAINTEXT://$at" --set "advertised.listeners=PLAINTEXT://$at" --set "admin.listener=127.0.0.1:$((admin + n - 1))" \
      --set default.replication.factor=3 --set min.insync.replicas=2 \
      --set "archive.url=s3://events?endpoint=http://127.0.0.1:$store&create=true" ;;
  esac
}

trap stop EXIT
trap 'exit 0' INT TERM HUP
sed -e "s|^dataDir=.*|dataDir=$dir/zookeeper|" -e "s|^clientPort=.*|clientPort=$zk|" deploy/cluster/zoo.cfg >"$dir/zoo.cfg"
echo "clientPortAddress=127.0.0.1" >>"$dir/zoo.cfg"
launch zookeeper; listening zookeeper "$zk"
launch minio; listening minio "$store"
echo "building firn"
go build -o "$dir/firn" ./cmd/firn
for n in 1 2 3; do launch firn-$n; done
for n in 1 2 3; do
  until curl -sf "http://127.0.0.1:$((admin + n - 1))/readyz" >/dev/null; do alive firn-$n || break; sleep 0.1; done
  alive firn-$n || failed "broker $n has ended" firn-$n
done
bootstrap=127.0.0.1:$port,127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2))
cat <<T

Three brokers are up: $bootstrap
ZooKeeper 127.0.0.1:$zk/firn, MinIO http://127.0.0.1:$store (bucket events), metrics on ports $admin to $((admin + 2)).
Data and logs: $dir. Ctrl-C stops all.

In another terminal:

  export FIRN_BROKERS=$bootstrap; alias firn=$dir/firn
  export AWS_ACCESS_KEY_ID=firn AWS_SECRET_ACCESS_KEY=firn-secret     # firn archive ls and verify read the bucket themselves
  firn cluster status
  firn topic create events --partitions 6
  seq 1000000 | firn produce events
  kill -9 \$(cat $dir/pids/firn-1)        # it comes back in five seconds; nothing is lost. Or zookeeper, or minio
  firn consume events | wc -l

T

# What ends is started again, as a service manager would, and said aloud: what the
# others do without it is to be seen.
declare -A ended=()
while sleep 1; do
  for name in zookeeper minio firn-1 firn-2 firn-3; do
    after=5; case $name in zookeeper | minio) after=$outage ;; esac
    if [ ! -e "$dir/pids/$name" ]; then
      unset "ended[$name]" # it is to stay away
    elif [ -z "${ended[$name]:-}" ]; then
      alive "$name" && continue
      ended[$name]=$SECONDS
      echo "$(date +%T) $name HAS ENDED (log: $dir/log/$name.log); it is started again in $after s"
    elif ((SECONDS - ended[$name] >= after)); then
      unset "ended[$name]"
      launch "$name"
      echo "$(date +%T) $name is started again"
    fi
  done
done
