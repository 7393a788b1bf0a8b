//! Requests with an `Idempotency-Key`.

use soong_protocol::{
    KeyedRequest, RequestAnswer, RequestKey, RequestSubject, RequestWrite, SessionWrite, Write,
};

use super::world::{TestStore, at, new_session, run_id, session_id};

const DAY_S: i64 = (KeyedRequest::LIFETIME_MS / 1_000) as i64;

fn key(key_hash: &str) -> RequestKey {
    RequestKey {
        uid: "ada".to_owned(),
        key_hash: key_hash.to_owned(),
        fingerprint: format!("of {key_hash}"),
    }
}

fn answer(key_hash: &str, session: Option<&str>, second: i64) -> Write {
    let answer = RequestAnswer {
        status: 202,
        body: "{}".to_owned(),
    };
    let session_id = session.map(session_id);
    Write::Request(RequestWrite::Answer {
        key: key(key_hash),
        answer,
        session_id,
        at: at(second),
    })
}

fn find(world: &TestStore, key_hash: &str) -> Option<KeyedRequest> {
    world.reader.keyed_request("ada", key_hash).unwrap()
}

pub(super) fn begun_request_is_known_until_it_is_withdrawn(mut world: TestStore) {
    let begin = || {
        Write::Request(RequestWrite::Begin {
            key: key("k"),
            at: at(1),
        })
    };
    let withdraw = || {
        Write::Request(RequestWrite::Withdraw {
            key: key("k"),
            at: at(2),
        })
    };
    world.write(vec![begin()]);
    let begun = find(&world, "k").unwrap();
    assert_eq!(
        (begun.fingerprint.as_str(), begun.subject, begun.answer),
        ("of k", None, None)
    );
    world.write(vec![withdraw()]);
    assert_eq!(find(&world, "k"), None);
    world.write(vec![begin(), answer("k", None, 3), withdraw()]);
    assert!(
        find(&world, "k").unwrap().answer.is_some(),
        "an answer is not withdrawn"
    );
}

pub(super) fn keyed_request_is_kept_for_its_lifetime(mut world: TestStore) {
    let subject = RequestSubject::Run(run_id("r"));
    world.write(vec![
        new_session("a"),
        key("k").claim(subject.clone(), at(1)),
    ]);
    let claimed = find(&world, "k").unwrap();
    assert_eq!(
        (
            claimed.fingerprint.as_str(),
            claimed.subject.as_ref(),
            claimed.answer
        ),
        ("of k", Some(&subject), None)
    );
    assert_eq!(
        world.reader.keyed_request("bob", "k").unwrap(),
        None,
        "the key of another user"
    );

    world.write(vec![answer("k", Some("a"), 2), answer("other", None, 3)]);
    let answered = find(&world, "k").unwrap();
    assert_eq!(
        (answered.subject.as_ref(), answered.at),
        (Some(&subject), at(2))
    );
    assert_eq!(answered.answer.unwrap().status, 202);

    // The answer is deleted with its session; the request is still known.
    world.write(vec![Write::Session(SessionWrite::BeginRemoval(
        session_id("a"),
    ))]);
    world.write(vec![Write::Session(SessionWrite::RemoveRows {
        session_id: session_id("a"),
        limit: 100,
    })]);
    let request = find(&world, "k").unwrap();
    assert_eq!((request.subject, request.answer), (Some(subject), None));

    // An answer to another request, whose key was free again, does not keep what the old one had
    // created.
    let other = RequestKey {
        fingerprint: "another".to_owned(),
        ..key("m")
    };
    let given = RequestAnswer {
        status: 200,
        body: "{}".to_owned(),
    };
    let answer_to_other = RequestWrite::Answer {
        key: other,
        answer: given,
        session_id: None,
        at: at(4),
    };
    world.write(vec![
        key("m").claim(RequestSubject::Run(run_id("r")), at(3)),
        Write::Request(answer_to_other),
    ]);
    assert_eq!(find(&world, "m").unwrap().subject, None);

    world.write(vec![answer("late", None, DAY_S + 2)]);
    assert!(
        find(&world, "k").is_some(),
        "its lifetime ends with this second"
    );
    world.write(vec![answer("later", None, DAY_S + 3)]);
    assert_eq!(find(&world, "k"), None);
    assert!(find(&world, "other").is_some());
}
