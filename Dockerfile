# The image of a release, for those who build with docker, podman or buildah: `make images` sets the arguments. Its files are written by the same
# program, and a test in hack/release compares the last stage with the configuration that this program writes.
FROM docker.io/library/golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY api/go.mod api/go.sum api/
RUN go mod download
COPY . .
ARG VERSION=dev
ARG GIT_COMMIT=unknown
RUN make image-files VERSION="$VERSION" GIT_COMMIT="$GIT_COMMIT"

FROM scratch
ARG VERSION=dev
ARG GIT_COMMIT=unknown
ARG CREATED=1970-01-01T00:00:00Z
# As one tree, so that /tmp keeps its mode.
COPY --from=build /src/bin/image-files /
ENV PATH=/
WORKDIR /
USER 65532:65532
LABEL org.opencontainers.image.title="atoll"
LABEL org.opencontainers.image.description="kcp-compatible control planes: servers, operator, sync agent and infrastructure provider"
LABEL org.opencontainers.image.source="https://github.com/atoll-dev/atoll"
LABEL org.opencontainers.image.version="$VERSION"
LABEL org.opencontainers.image.revision="$GIT_COMMIT"
LABEL org.opencontainers.image.created="$CREATED"
LABEL org.opencontainers.image.licenses="Apache-2.0"
