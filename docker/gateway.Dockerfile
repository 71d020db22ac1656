# The client's example gateway: docker build -f docker/gateway.Dockerfile -t rl-gateway .
ARG BUILD_IMAGE=rust:1.88-bookworm
ARG RUN_IMAGE=debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY benches benches
COPY src src
RUN cargo build --release --locked -p rl-client --features sentinel --example gateway

FROM ${RUN_IMAGE}
COPY --from=build /src/target/release/examples/gateway /usr/local/bin/gateway
EXPOSE 8080
ENTRYPOINT ["gateway"]
