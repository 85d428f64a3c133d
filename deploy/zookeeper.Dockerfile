# ZooKeeper as Debian packages it, by plain java: docker build -f deploy/zookeeper.Dockerfile .
FROM debian:bookworm-slim
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless libzookeeper-java \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir -p /var/lib/zookeeper && chown 1000:1000 /var/lib/zookeeper
COPY deploy/cluster/zoo.cfg /etc/firn/zoo.cfg
USER 1000:1000
VOLUME /var/lib/zookeeper
EXPOSE 2181
ENTRYPOINT ["/usr/bin/java"]
CMD ["-Xmx256m", "-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar", "org.apache.zookeeper.server.quorum.QuorumPeerMain", "/etc/firn/zoo.cfg"]
