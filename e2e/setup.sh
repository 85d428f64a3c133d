#!/usr/bin/env bash
# Installs what the tests need and this machine lacks: Debian's kcat, jq, a JDK,
# Maven and ZooKeeper's jars; MinIO (built from source, runs as a process of its
# own); Apache Kafka's client, tools and server from Maven Central. Everything but
# Debian's packages lands in .cache and is kept. Takes about ten minutes the first
# time.
#
#   e2e/setup.sh [debian] [minio] [kafka]      no argument: all
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${FIRN_CACHE:-$PWD/.cache}
kafka=4.3.1
minio=v0.0.0-20260212201848-7aac2a2c5b7c
mkdir -p "$cache/bin"

debian() {
  local want=()
  command -v kcat >/dev/null || want+=(kcat)
  command -v jq >/dev/null || want+=(jq)
  command -v curl >/dev/null || want+=(curl)
  command -v gcc >/dev/null || want+=(gcc libc6-dev)   # go test -race
  command -v javac >/dev/null || want+=(openjdk-17-jdk-headless)
  command -v mvn >/dev/null || want+=(maven)
  [ -e /usr/share/java/zookeeper.jar ] || want+=(libzookeeper-java)   # run by the tests with plain java
  [ ${#want[@]} = 0 ] && return
  echo "installing ${want[*]}"
  local sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${want[@]}" >/dev/null
}

minio() {
  [ -x "$cache/bin/minio" ] && return
  echo "building MinIO $minio (several minutes, once)"
  GOBIN="$cache/bin.tmp" GOFLAGS= go install -trimpath "github.com/minio/minio@$minio"
  mv "$cache/bin.tmp/minio" "$cache/bin/minio" && rmdir "$cache/bin.tmp"
}

kafka() {
  local dir=$cache/kafka-$kafka
  [ -e "$dir/.complete" ] && return
  echo "fetching Apache Kafka $kafka from Maven Central"
  mkdir -p "$dir/lib"
  cat > "$dir/pom.xml" <<P
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>firn</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$kafka</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$kafka</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
P
  (cd "$dir" && mvn -q -B dependency:copy-dependencies -DoutputDirectory="$dir/lib" -DincludeScope=runtime)
  touch "$dir/.complete"
}

for part in "${@:-debian minio kafka}"; do
  for p in $part; do
    start=$SECONDS
    "$p"
    echo "== set-up $p: $((SECONDS - start)) s"
  done
done
