# MinIO from its last public source (AGPL-3.0; a process of its own, never linked).
FROM golang:1.26 AS build
RUN CGO_ENABLED=0 go install -trimpath github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c && mkdir -p /out/data

FROM gcr.io/distroless/static:nonroot
COPY --from=build /go/bin/minio /usr/local/bin/minio
COPY --from=build --chown=1000:1000 /out/data /data
USER 1000:1000
VOLUME /data
EXPOSE 9000
ENTRYPOINT ["/usr/local/bin/minio"]
CMD ["server", "--address", ":9000", "/data"]
