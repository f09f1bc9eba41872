# One image with all server binaries. Works with docker, podman and buildah.
FROM docker.io/library/golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY api/go.mod api/go.sum api/
RUN go mod download
COPY . .
RUN make build && mkdir -p /rootfs/etc /rootfs/tmp && chmod 1777 /rootfs/tmp \
 && cp bin/operator bin/kcp bin/kcp-front-proxy bin/cache-server bin/virtual-workspaces bin/sync-agent bin/infrastructure-provider bin/etcd /rootfs/ \
 && printf 'atoll:x:65532:65532::/:/\n' > /rootfs/etc/passwd

FROM scratch
# As one tree, so that /tmp keeps its mode.
COPY --from=build /rootfs /
USER 65532:65532
ENTRYPOINT ["/kcp"]
