# The client's example gateway:
#
#   docker build -f docker/gateway.Dockerfile -t rl-gateway .
ARG BUILD_IMAGE=rust:1.88-bookworm
ARG RUN_IMAGE=debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
# The profile `dev` compiles faster and runs slower.
ARG PROFILE=release
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY crates crates
# Cargo.toml names a bench target, so cargo needs the file.
COPY benches benches
COPY src src
RUN cargo install --locked --profile ${PROFILE} --path crates/client --example gateway --root /out

FROM ${RUN_IMAGE}
COPY --from=build /out/bin/gateway /usr/local/bin/gateway
EXPOSE 8080
ENTRYPOINT ["gateway"]
