-- Takes a chunk of units or, if that is denied, the cost of one call.
--
-- KEYS  the key
-- ARGV  command, the limit's parameters, chunk, cost
-- reply the five integers, the units taken, and the server's time (us) just before
local time = redis.call('TIME')
local command, chunk, cost = ARGV[1], ARGV[#ARGV - 1], ARGV[#ARGV]
local args = {unpack(ARGV, 2, #ARGV - 2)}
local last = #args + 1
args[last] = chunk
local reply = redis.call(command, KEYS[1], unpack(args))
local taken = chunk
if reply[1] == 0 then
  args[last] = cost
  reply = redis.call(command, KEYS[1], unpack(args))
  taken = cost
end
return {reply, reply[1] * tonumber(taken), time[1] * 1000000 + time[2]}
