//! The cache of the model's service that a run shares with runs whose prompts begin alike.
//!
//! Sub-agents of one call have their system prompt, tools, given messages and context in common.
//! The first of several starts alone, so that the others find that part in the cache.
//!
//! Elsewhere: which runs share a cache (`gateway/prefix_cache.rs`), what a request says about it
//! (`soong-model`).

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, PoisonError},
};

use soong_model::CacheHints;
use soong_protocol::Message;
use tokio::time::Instant;

use crate::{
    gateway::{CallSink, Gateway, PrefixCache},
    run::{
        machine::{
            effect::ModelCall,
            spec::{ModelSpec, RunSpec},
        },
        tasks::{
            elapsed_ms,
            model_call::{CallObserver, ModelCaller},
        },
    },
};

/// Minimum number of sub-agents of a run for a warm-up.
const MIN_SIBLINGS: usize = 4;

impl ModelCaller {
    /// Returns the cache hints of the request. The first call of a sub-agent waits until its first
    /// sibling has filled the cache.
    pub(super) async fn cache_hints(
        &self,
        spec: &RunSpec,
        model: &ModelSpec,
        gateway: &Gateway,
        call: &ModelCall,
        observer: &mut CallObserver,
    ) -> CacheHints {
        let shared_messages = shared_message_count(spec).min(call.messages.len());
        let mut hints = CacheHints {
            key: None,
            shared_messages,
            is_long_lived: model.is_long_cached,
        };
        let Some(rule) = model.cache else {
            return hints;
        };
        let shared = &call.messages[..shared_messages];
        let cache =
            observer.prefix_cache(gateway, || prefix_hash(spec, model, &call.system, shared));
        hints.key = Some(cache.key());
        let shared_tokens = || {
            let counter = model.counter;
            let messages: u64 = shared.iter().map(|message| counter.count(message)).sum();
            counter.correct(spec.tools.tokens) + counter.count_text(&call.system) + messages
        };
        let is_first_call = call.turn <= 1 && !spec.settings.continues;
        if self.warm_prefix
            && is_first_call
            && self.has_siblings(spec)
            && shared_tokens() >= rule.min_tokens
        {
            let start = Instant::now();
            let reason = "waiting for the first sub-agent to fill the prompt cache";
            let warm_up = cache
                .warm_up(|| observer.set_wait_reason(Some(reason.to_owned())))
                .await;
            observer.warm_up = warm_up;
            observer.set_wait_reason(None);
            observer.waited_ms += elapsed_ms(start);
        }
        hints
    }

    /// Returns whether the run is one of enough sub-agents for a warm-up.
    fn has_siblings(&self, spec: &RunSpec) -> bool {
        let parent = spec
            .identity
            .parent_id()
            .and_then(|parent| self.core.runs.get(parent));
        parent.is_some_and(|parent| parent.published().child_count >= MIN_SIBLINGS)
    }
}

impl CallObserver {
    /// Returns the cache that the run uses, and counts the request. The run keeps its cache while
    /// it keeps its profile.
    fn prefix_cache(&self, gateway: &Gateway, prefix: impl FnOnce() -> u64) -> Arc<PrefixCache> {
        let mut known = self
            .run()
            .models
            .prefix_cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, cache)) = known
            .as_ref()
            .filter(|(profile, _)| *profile == gateway.profile)
        {
            cache.count_request();
            return Arc::clone(cache);
        }
        let cache = gateway.prefix_cache(prefix());
        *known = Some((Arc::clone(&gateway.profile), Arc::clone(&cache)));
        cache
    }
}

/// Returns the number of messages at the beginning that siblings have in common: those given by the
/// parent, and its context.
fn shared_message_count(spec: &RunSpec) -> usize {
    let settings = &spec.settings;
    let is_first_run = spec.identity.depth > 0 && !settings.continues && !settings.resumes;
    if is_first_run {
        settings.options.messages.len() + usize::from(settings.context.is_some())
    } else {
        0
    }
}

/// Returns a hash of the beginning of the prompt.
fn prefix_hash(spec: &RunSpec, model: &ModelSpec, system: &str, shared: &[Arc<Message>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&model.name, system).hash(&mut hasher);
    if spec.identity.depth == 0 {
        // The runs of a conversation have its whole history in common.
        spec.identity.trace_id.hash(&mut hasher);
    }
    spec.tools
        .specs
        .iter()
        .for_each(|tool| tool.name.hash(&mut hasher));
    shared
        .iter()
        .for_each(|message| message.content.as_str().hash(&mut hasher));
    hasher.finish()
}
