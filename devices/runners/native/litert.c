/* LiteRT through the C API of libLiteRt (2.2 and later): compiled models on the CPU, one per file, a signature for each
   length. Inputs are found by the names that the signature gives them. */
#define _GNU_SOURCE
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ON_CPU = 1, READ = 0, WRITE = 1, MOST_SIGNATURES = 64 };

typedef void *Handle;
typedef struct { /* LiteRtRankedTensorType */
  int32_t element;
  uint32_t rank_and_strides;
  int32_t dimensions[8];
  uint32_t strides[8];
} TensorType;
typedef struct {
  int ready;
  Handle signature;
  size_t index, inputs, outputs;
  Handle input[ROLES], output[MOST_OUTPUTS];
  size_t output_bytes;
  int role_of[ROLES]; /* place in the entry's inputs for each input of the signature */
} Bound;
typedef struct {
  const Sentence *sentence;
  Bound *bound;
  float *values;
} Call;

static void *library;
static const Request *request;
static Handle environment, model, compiled;
static Bound *bound;

static void check(int status, const char *what) {
  if (status) fail("LiteRtError", "%s: status %d", what, status);
}
#define CALL(name, types, ...) check(((int(*) types)find_symbol(library, #name))(__VA_ARGS__), #name)

static void release(void *memory) { free(memory); }

static void load(const char *path, const char *file, const Request *asked) {
  Handle options, cpu;
  char *threads;
  library = open_library(path);
  request = asked;
  bound = allocate((size_t)request->entries * sizeof *bound);
  CALL(LiteRtCreateEnvironment, (int, void *, Handle *), 0, NULL, &environment);
  CALL(LiteRtCreateModelFromFile, (Handle, const char *, Handle *), environment, file, &model);
  CALL(LiteRtCreateOptions, (Handle *), &options);
  CALL(LiteRtSetOptionsHardwareAccelerators, (Handle, int), options, ON_CPU);
  if (asprintf(&threads, "num_threads = %d\n", request->threads) < 0) fail("MemoryError", "no memory left");
  CALL(LiteRtCreateOpaqueOptions, (const char *, void *, void (*)(void *), Handle *), "xnnpack", threads, release, &cpu);
  CALL(LiteRtAddOpaqueOptions, (Handle, Handle), options, cpu);
  CALL(LiteRtCreateCompiledModel, (Handle, Handle, Handle, Handle *), environment, model, options, &compiled);
}

static Handle buffer(size_t signature, size_t index, int is_input, Handle tensor) {
  Handle needs, made;
  TensorType type;
  memset(&type, 0, sizeof type);
  if (is_input) CALL(LiteRtGetCompiledModelInputBufferRequirements, (Handle, size_t, size_t, Handle *), compiled, signature, index, &needs);
  else CALL(LiteRtGetCompiledModelOutputBufferRequirements, (Handle, size_t, size_t, Handle *), compiled, signature, index, &needs);
  CALL(LiteRtGetRankedTensorType, (Handle, TensorType *), tensor, &type);
  CALL(LiteRtCreateManagedTensorBufferFromRequirements, (Handle, TensorType *, Handle, Handle *), environment, &type, needs, &made);
  return made;
}

static Bound *bind(int number) {
  const Entry *entry = &request->entry[number];
  Bound *found = &bound[number];
  size_t signatures;
  if (found->ready) return found;
  CALL(LiteRtGetNumModelSignatures, (Handle, size_t *), model, &signatures);
  for (found->index = 0; found->index < signatures; found->index++) {
    const char *key;
    CALL(LiteRtGetModelSignature, (Handle, size_t, Handle *), model, found->index, &found->signature);
    CALL(LiteRtGetSignatureKey, (Handle, const char **), found->signature, &key);
    if (!strcmp(key, entry->key)) break;
  }
  if (found->index == signatures) fail("ValueError", "the model has no signature %s", entry->key);
  CALL(LiteRtGetNumSignatureInputs, (Handle, size_t *), found->signature, &found->inputs);
  CALL(LiteRtGetNumSignatureOutputs, (Handle, size_t *), found->signature, &found->outputs);
  if (found->inputs != (size_t)entry->inputs || found->outputs > MOST_OUTPUTS)
    fail("ValueError", "signature %s has %zu inputs and %zu outputs", entry->key, found->inputs, found->outputs);
  for (size_t i = 0; i < found->inputs; i++) {
    const char *name;
    Handle tensor;
    CALL(LiteRtGetSignatureInputName, (Handle, size_t, const char **), found->signature, i, &name);
    found->role_of[i] = -1;
    for (int k = 0; k < entry->inputs; k++)
      if (!strcmp(entry->input[k].name, name)) found->role_of[i] = k;
    if (found->role_of[i] < 0) fail("ValueError", "signature %s has an input %s", entry->key, name);
    CALL(LiteRtGetSignatureInputTensorByIndex, (Handle, size_t, Handle *), found->signature, i, &tensor);
    found->input[i] = buffer(found->index, i, 1, tensor);
  }
  for (size_t i = 0; i < found->outputs; i++) {
    Handle tensor;
    CALL(LiteRtGetSignatureOutputTensorByIndex, (Handle, size_t, Handle *), found->signature, i, &tensor);
    found->output[i] = buffer(found->index, i, 0, tensor);
  }
  CALL(LiteRtGetTensorBufferPackedSize, (Handle, size_t *), found->output[0], &found->output_bytes);
  found->ready = 1;
  return found;
}

static void *prepare(const Sentence *sentence) {
  Call *call = allocate(sizeof *call);
  call->sentence = sentence;
  call->bound = bind(sentence->entry);
  call->values = allocate(call->bound->output_bytes);
  return call;
}

static void fill(void *prepared) {
  Call *call = prepared;
  const Entry *entry = &request->entry[call->sentence->entry];
  for (size_t i = 0; i < call->bound->inputs; i++) {
    const Input *input = &entry->input[call->bound->role_of[i]];
    size_t room;
    void *row;
    CALL(LiteRtGetTensorBufferPackedSize, (Handle, size_t *), call->bound->input[i], &room);
    if (room < (size_t)call->sentence->length * (size_t)input->bytes)
      fail("ValueError", "input %s has room for %zu bytes, not for %d tokens", input->name, room, call->sentence->length);
    CALL(LiteRtLockTensorBuffer, (Handle, void **, int), call->bound->input[i], &row, WRITE);
    write_row(request, call->sentence, input, row);
    CALL(LiteRtUnlockTensorBuffer, (Handle), call->bound->input[i]);
  }
}

static int (*run_model)(Handle, size_t, size_t, Handle *, size_t, Handle *);

static void run(void *prepared) {
  Call *call = prepared;
  if (!run_model) *(void **)&run_model = find_symbol(library, "LiteRtRunCompiledModel");
  check(run_model(compiled, call->bound->index, call->bound->inputs, call->bound->input, call->bound->outputs,
                  call->bound->output), "the model does not run");
}

static const float *logits(void *prepared, size_t *count) {
  Call *call = prepared;
  void *data;
  CALL(LiteRtLockTensorBuffer, (Handle, void **, int), call->bound->output[0], &data, READ);
  memcpy(call->values, data, call->bound->output_bytes);
  CALL(LiteRtUnlockTensorBuffer, (Handle), call->bound->output[0]);
  *count = call->bound->output_bytes / sizeof(float);
  return call->values;
}

static void done(void *prepared) { (void)prepared; }

Backend litert_backend = {"litert", load, prepare, fill, run, logits, done};
