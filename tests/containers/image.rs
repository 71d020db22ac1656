//! The image as users run it.

use rstest::rstest;

use crate::docker::{docker, image, label};
use crate::network::Network;
use rl_testkit::Reply;

#[rstest]
#[ignore = "needs Docker: make test-containers"]
fn the_image_serves_limits_without_a_word_of_configuration() {
    let server = &Network::new();
    let server = server.server(&[]);
    let reply: Reply = server.run("RL.SLIDE user:42 100 60");
    assert_eq!(reply, (1, 100, 99, 0, 120_000));
    assert!(
        server
            .exec(&["cli", "RL.SLIDE", "user:42", "100", "60"])
            .unwrap()
            .starts_with("1\n100\n98")
    );
}

#[rstest]
#[ignore = "needs Docker: make test-containers"]
fn further_words_are_options_of_the_server_and_other_programs_run_as_they_are() {
    let network = Network::new();
    let server = network.server(&["--appendonly", "yes"]);
    assert_eq!(server.info("persistence", "aof_enabled"), "1");
    assert_eq!(server.run::<Reply>("RL.SLIDE k 5 60").0, 1);
    let said = docker(&[
        "run",
        "--rm",
        "--label",
        &label(),
        &image(),
        "echo",
        "hello",
    ]);
    assert_eq!(said, "hello");
}
