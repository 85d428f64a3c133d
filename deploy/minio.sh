#!/usr/bin/env bash
# MinIO on loopback with its data in .cache/minio-data, until Ctrl-C. firn makes
# the bucket itself (create=true). The binary is built by e2e/setup.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${FIRN_CACHE:-$PWD/.cache}
port=${MINIO_PORT:-9000}
export MINIO_ROOT_USER=${MINIO_ROOT_USER:-firn} MINIO_ROOT_PASSWORD=${MINIO_ROOT_PASSWORD:-firn-secret}
mkdir -p "$cache/minio-data"
"$cache/bin/minio" server --quiet --address "127.0.0.1:$port" --console-address "127.0.0.1:$((port + 1))" "$cache/minio-data" &
minio=$!
trap 'kill $minio 2>/dev/null; wait $minio 2>/dev/null || true' EXIT INT TERM
for _ in $(seq 100); do
  curl -sf "http://127.0.0.1:$port/minio/health/ready" >/dev/null && break
  kill -0 $minio 2>/dev/null || { echo "MinIO did not start: is port $port taken? MINIO_PORT names another." >&2; exit 1; }
  sleep 0.1
done
cat <<T
MinIO is up on http://127.0.0.1:$port, its data in $cache/minio-data. Ctrl-C stops it.

In another terminal:

  export AWS_ACCESS_KEY_ID=$MINIO_ROOT_USER AWS_SECRET_ACCESS_KEY=$MINIO_ROOT_PASSWORD
  go run ./cmd/firn serve --data ./firn-minio --set 'archive.url=s3://events?endpoint=http://127.0.0.1:$port&create=true'

T
wait $minio
