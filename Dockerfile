# One image with all server binaries. Works with docker, podman and buildah.
FROM docker.io/library/golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY api/go.mod api/go.sum api/
RUN go mod download
COPY . .
RUN make build && mkdir -p /out/tmp && chmod 1777 /out/tmp \
 && cp bin/operator bin/kcp bin/kcp-front-proxy bin/etcd /out/ \
 && printf 'atoll:x:65532:65532::/:/\n' > /out/passwd

FROM scratch
COPY --from=build /out/operator /out/kcp /out/kcp-front-proxy /out/etcd /
COPY --from=build /out/tmp /tmp
COPY --from=build /out/passwd /etc/passwd
USER 65532:65532
ENTRYPOINT ["/kcp"]
